// What else there is for sums over the labellings of attractive binary models, for benchmarks alone.
//
// Model.      p(y) is proportional to exp( sum_i field[i] y_i + sum_e coupling[e] [y_i == y_j] ), y in {0,1}^n,
//             couplings not negative.
// Methods.    Gibbs sampling, site by site; Swendsen-Wang, whose clusters are drawn with their fields, each followed by
//             a sweep of Gibbs; annealed importance sampling, whose couplings grow from nothing to what they are.
// Averages.   Not labels but their probabilities given all other sites are averaged: less variance.
// Time.       CPU seconds of the process.
// References. Geman and Geman, PAMI 1984; Swendsen and Wang, Physical Review Letters 1987; Neal, Annealed importance
//             sampling, Statistics and Computing 2001; xorshift64*: Vigna, ACM TOMS 2016.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <numeric>
#include <utility>
#include <vector>

namespace {

struct Random {
    std::uint64_t state;

    explicit Random(std::uint64_t seed) : state(seed * 0x9E3779B97F4A7C15u + 1) {
        for (int i = 0; i < 20; ++i) (*this)();
    }

    double operator()() {  // in [0, 1)
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        return static_cast<double>((state * 0x2545F4914F6CDD1Du) >> 11) * 0x1p-53;
    }
};

double probability_of_one(double log_odds) { return 1.0 / (1.0 + std::exp(-log_odds)); }

double cpu_seconds() {
    timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

class Model {
   public:
    Model(int n_sites, int n_edges, const std::int32_t* edges, const double* fields, const double* couplings)
        : n(n_sites), m(n_edges), edges_(edges), field_(fields), coupling_(couplings), first_(n + 1, 0), near_(2 * m),
          cluster_(n), total_(n), bond_(m) {
        for (int h = 0; h < 2 * m; ++h) ++first_[edges[h] + 1];
        for (int i = 0; i < n; ++i) first_[i + 1] += first_[i];
        std::vector<int> next(first_.begin(), first_.end() - 1);
        for (int e = 0; e < m; ++e) {
            const int i = edges[2 * e], j = edges[2 * e + 1];
            near_[next[i]++] = {couplings[e], j};
            near_[next[j]++] = {couplings[e], i};
        }
        set_strength(1.0);
    }

    // All couplings are multiplied by this number.
    void set_strength(double strength) {
        strength_ = strength;
        for (int e = 0; e < m; ++e) bond_[e] = 1.0 - std::exp(-strength * coupling_[e]);
    }

    // One sweep of Gibbs; adds the probabilities of label 1 to `sums` unless it is null.
    void sweep(std::int32_t* y, Random& random, double* sums) const {
        for (int i = 0; i < n; ++i) {
            double pull = 0;
            for (int a = first_[i]; a < first_[i + 1]; ++a) pull += y[near_[a].site] ? near_[a].coupling : -near_[a].coupling;
            const double p = probability_of_one(field_[i] + strength_ * pull);
            y[i] = random() < p;
            if (sums) sums[i] += p;
        }
    }

    // Swendsen-Wang: equal neighbours are tied together at random, and every cluster draws its label anew.
    void flip_clusters(std::int32_t* y, Random& random) {
        std::iota(cluster_.begin(), cluster_.end(), 0);
        for (int e = 0; e < m; ++e) {
            const int i = edges_[2 * e], j = edges_[2 * e + 1];
            if (y[i] == y[j] && random() < bond_[e]) cluster_[root(i)] = root(j);
        }
        std::fill(total_.begin(), total_.end(), 0.0);
        for (int i = 0; i < n; ++i) total_[root(i)] += field_[i];
        for (int i = 0; i < n; ++i)
            if (root(i) == i) y[i] = random() < probability_of_one(total_[i]);
        for (int i = 0; i < n; ++i) y[i] = y[root(i)];
    }

    double agreement(const std::int32_t* y) const {
        double sum = 0;
        for (int e = 0; e < m; ++e) sum += y[edges_[2 * e]] == y[edges_[2 * e + 1]] ? coupling_[e] : 0.0;
        return sum;
    }

    // A labelling of the model without couplings; returns the logarithm of its sum.
    double start(std::int32_t* y, Random& random) const {
        double log_sum = 0;
        for (int i = 0; i < n; ++i) {
            y[i] = random() < probability_of_one(field_[i]);
            log_sum += std::fmax(field_[i], 0.0) + std::log1p(std::exp(-std::fabs(field_[i])));
        }
        return log_sum;
    }

    const int n, m;

   private:
    struct Neighbour {
        double coupling;
        int site;
    };

    int root(int i) {
        while (cluster_[i] != i) i = cluster_[i] = cluster_[cluster_[i]];
        return i;
    }

    const std::int32_t* edges_;
    const double *field_, *coupling_;
    double strength_ = 1.0;
    std::vector<int> first_;
    std::vector<Neighbour> near_;
    std::vector<int> cluster_;
    std::vector<double> total_, bond_;
};

}  // namespace

// Chains from `labels` (n_chains, n_sites), each with its share of the time, the first tenth of which is not averaged.
// Writes the mean probabilities of label 1 (n_sites).
extern "C" void run_chains(int n_sites, int n_edges, const std::int32_t* edges, const double* fields,
                           const double* couplings, int with_clusters, double seconds, std::uint64_t seed, int n_chains,
                           std::int32_t* labels, double* means) {
    constexpr int between_looks = 16;  // sweeps between two looks at the clock
    Model model(n_sites, n_edges, edges, fields, couplings);
    Random random(seed);
    std::vector<double> sums(n_sites);
    std::fill_n(means, n_sites, 0.0);
    const double began = cpu_seconds();
    for (int chain = 0; chain < n_chains; ++chain) {
        std::int32_t* y = labels + static_cast<std::size_t>(chain) * n_sites;
        const double from = cpu_seconds(), until = began + seconds * (chain + 1) / n_chains;
        std::fill(sums.begin(), sums.end(), 0.0);
        double n_averaged = 0;
        for (double now = from; n_averaged == 0 || now < until; now = cpu_seconds()) {
            const bool counts = now >= from + 0.1 * (until - from);
            for (int s = 0; s < between_looks; ++s) {
                if (with_clusters) model.flip_clusters(y, random);
                model.sweep(y, random, counts ? sums.data() : nullptr);
            }
            n_averaged += counts ? between_looks : 0;
        }
        for (int i = 0; i < n_sites; ++i) means[i] += sums[i] / n_averaged / n_chains;
    }
}

// Annealed importance sampling: the logarithms of the weights (n_chains), whose mean is Z.
extern "C" void anneal(int n_sites, int n_edges, const std::int32_t* edges, const double* fields,
                       const double* couplings, int with_clusters, int n_steps, std::uint64_t seed, int n_chains,
                       double* log_weights) {
    Model model(n_sites, n_edges, edges, fields, couplings);
    Random random(seed);
    std::vector<std::int32_t> labels(static_cast<std::size_t>(n_chains) * n_sites);
    for (int chain = 0; chain < n_chains; ++chain)
        log_weights[chain] = model.start(labels.data() + static_cast<std::size_t>(chain) * n_sites, random);
    for (int step = 1; step <= n_steps; ++step) {
        model.set_strength(static_cast<double>(step) / n_steps);
        for (int chain = 0; chain < n_chains; ++chain) {
            std::int32_t* y = labels.data() + static_cast<std::size_t>(chain) * n_sites;
            log_weights[chain] += model.agreement(y) / n_steps;
            if (with_clusters) model.flip_clusters(y, random);
            model.sweep(y, random, nullptr);
        }
    }
}
