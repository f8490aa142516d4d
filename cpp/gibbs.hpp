// Gibbs sampling: chains of labellings of one example, whose labels are drawn site by site given all others.
//
// Problem.    From each start, go on for some sweeps; average the conditional probabilities of every site's labels.
// Method.     Sites in turn. The probability, not the label drawn, is what is averaged: less variance. How often labels were
//             drawn is counted beside it: the difference has mean zero, and says where a chain was by chance
//             (perturbmap.inference.linear_response).
// Random.     Sweep s of chain c uses the numbers of draw c * (all sweeps) + s of the example's stream (philox.hpp), so
//             that chains can run on any thread.
// Two labels. Label 1 is drawn where the log-odds exceed a logistic random number. These numbers do not depend on labels,
//             nor does a label wait for its probability: both are computed for many sites at once, and what is left from
//             site to site is a sum and a comparison. Where edges attract, both keep the order of two labellings that
//             see the same numbers, also when rounded: coupling from the past rests on it (perturbmap.inference.chains).
// Cost.       O(sites + edges) K for each sweep.
// Reference.  Geman and Geman, Stochastic relaxation, Gibbs distributions, and the Bayesian restoration of images, PAMI
//             1984.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "batch.hpp"
#include "neighbours.hpp"

namespace perturbmap {

struct Sweeps {
    std::uint64_t seed;
    std::size_t n_burn, n_kept;  // those at the beginning are not averaged
    std::size_t first_chain;     // the number of the first one
};

// Runs one chain after another on one example of a batch; the batch must outlive it and must not change.
class Gibbs {
   public:
    explicit Gibbs(const Batch& batch) : batch_(batch) {}

    // Moves `labels` (n_sites), which have all given labels, by all sweeps, and writes the mean probabilities and the shares
    // of the labels drawn, (n_sites, K) each.
    void run(std::size_t example, std::uint64_t stream, const Sweeps& sweeps, std::size_t chain, std::int32_t* labels,
             double* probabilities, double* shares);

    // Coupling from the past (Propp and Wilson 1996), for two labels that attract each other: moves the labellings of all
    // zeros and of all ones with the same random numbers, by `n_blocks` blocks of sweeps, of which the first has the last of
    // the streams. True where they have met; then `labels` (n_sites), where they are, is an exact sample.
    bool meet(std::size_t example, std::uint64_t seed, std::size_t n_blocks, const std::uint64_t* streams,
              std::size_t sweeps_a_block, std::size_t chain, std::int32_t* labels);

    // Nanoseconds for one sweep of all examples. Measured: about 23 for each site of a grid with two labels.
    static double work(const Batch& batch) { return 15.0 * static_cast<double>(batch.n_sites * batch.n_labels); }

   private:
    // With two labels: what a neighbour with each label adds to the log-odds of label 1.
    struct Pull {
        double of[2];
        std::int32_t site;
    };

    void select(std::size_t example);
    void sweep(std::size_t example, std::uint64_t seed, std::uint64_t stream, std::uint32_t draw, std::int32_t* labels,
               double* sums, double* counts);
    // What a sweep of two labels draws with numbers that are there already.
    void draw_binary(std::size_t example, std::int32_t* labels);
    void sweep_binary(std::size_t example, std::uint64_t seed, std::uint64_t stream, std::uint32_t draw,
                      std::int32_t* labels, double* sums, double* counts);

    const Batch& batch_;
    std::size_t example_ = no_example;
    Neighbours neighbours_;
    std::vector<Pull> pulls_;  // those of a site begin at first_pull_
    std::vector<std::size_t> first_pull_;
    std::vector<double> score_, log_odds_, logistic_;
    std::vector<std::int32_t> high_;
};

}  // namespace perturbmap
