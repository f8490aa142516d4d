// Gibbs sampling of matchings: chains whose sites exchange their labels.
//
// Problem.    As in gibbs.hpp, over labellings that have no label twice: no label can change alone.
// Method.     For every free site and every other one in turn: the two exchange their labels or do not, with the
//             probabilities of the two matchings given that it is one of them. The unused labels count as those of further
//             sites, which have no preferences, shuffled at the start: any order of theirs is as likely as any other.
// Averages.   For each site the expected labels of its own turns: less variance than the labels.
// Random.     As in gibbs.hpp; number d K + r of a sweep is for sites d and r, and blocks of the first sweep that no site
//             needs are for the shuffle.
// Cost.       O(sites K) for each sweep.
// Reference.  Diaconis and Shahshahani, Generating a random permutation with random transpositions, 1981, for equal
//             weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "batch.hpp"
#include "gibbs.hpp"

namespace perturbmap {

// Runs one chain after another on one example of a batch; the batch must outlive it and must not change.
class Swaps {
   public:
    explicit Swaps(const Batch& batch) : batch_(batch) {}

    // Moves `labels` (n_sites), distinct and with all given labels, by all sweeps, and writes the mean probabilities and the
    // shares of the labels at the ends of sweeps, (n_sites, K) each.
    void run(std::size_t example, std::uint64_t stream, const Sweeps& sweeps, std::size_t chain, std::int32_t* labels,
             double* probabilities, double* shares);

    // Nanoseconds for one sweep of all examples. Measured: 34 for each site and label.
    static double work(const Batch& batch) { return 34.0 * static_cast<double>(batch.n_sites * batch.n_labels); }

   private:
    // All labels: those of the sites, and the unused ones in a random order.
    void lay_out(std::size_t n_sites, const std::int32_t* labels, std::uint64_t seed, std::uint64_t stream,
                 std::uint32_t draw);

    const Batch& batch_;
    std::vector<std::size_t> label_;
    std::vector<char> is_used_;
};

}  // namespace perturbmap
