// What the Gibbs distribution exp f(y) / Z of a rooted forest can tell besides its marginals: exact samples, the entropy of
// a labelling, and the probability that some sites have given labels.
//
// Samples.  Messages go from the leaves to the roots once; then the label of each site is drawn given that of its parent,
//           from the roots on. Number d of a draw of the example's stream (uniform.hpp) decides the label of site d.
// Entropy.  log Z - E f(y), from the marginals of sites and edges; rounding leaves an error of about 1e-15 times the size of
//           f(y). It is never below zero.
// Spans.    Where the sites are connected, the probability is the marginal of the one nearest to the root, times that of each
//           other given its parent. Elsewhere it is Z given the labels over Z.
// Forbidden labels and pairs have the potential -inf. Where no labelling is left, labels are -1, and numbers NaN.
// Cost.     O(edges * K^2) for the sweeps over an example; O(sites * K) for each sample; O(K) for each site of a span, or
//           another sweep where its sites are not connected.
// Reference. Chib, Calculating posterior distributions and modal estimates in Markov mixture models, Journal of
//           Econometrics 1996 (forward filtering, backward sampling).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "batch.hpp"
#include "forest.hpp"
#include "log_sums.hpp"
#include "scaled_sums.hpp"

namespace perturbmap {

// Answers for one example of a batch after another; the batch must outlive it and must not change.
class TreeGibbs {
   public:
    explicit TreeGibbs(const Batch& batch) : forest_(batch), scaled_(forest_), log_(forest_) {}
    TreeGibbs(const TreeGibbs&) = delete;
    TreeGibbs& operator=(const TreeGibbs&) = delete;

    // Writes the labels (n_sites) of one sample.
    void sample(std::size_t copy, std::size_t example, std::uint64_t seed, std::uint64_t stream, std::uint32_t draw,
                std::int32_t* labels);
    double entropy(std::size_t copy, std::size_t example);
    // The probability that n different sites, counted in the example, have these labels.
    double probability(std::size_t copy, std::size_t example, std::size_t n, const std::int32_t* sites,
                       const std::int32_t* labels);

   private:
    enum class Swept { nothing, upwards, both };

    // Makes at least the wanted sweeps over a copy of an example, unless they were the last.
    void sweep(std::size_t copy, std::size_t example, Swept wanted);
    // log Z of the selected example given labels (n_sites); -inf where there is no labelling.
    double log_partition_given(const double* unary, const std::int32_t* given);
    Distribution given_parent(std::size_t position, std::size_t above);
    Distribution marginal(std::size_t position);

    Forest forest_;
    ScaledSums scaled_;
    LogSums log_;
    std::size_t copy_ = 0, example_ = no_example;
    Swept swept_ = Swept::nothing;
    bool is_scaled_ = false;
    double total_ = 0;
    std::vector<double> uniform_, unary_, tables_;
    std::vector<std::int32_t> known_;
    std::vector<std::size_t> positions_;  // of each site, for the example of the last probability
    std::size_t placed_ = no_example;
};

}  // namespace perturbmap
