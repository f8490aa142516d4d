#include "tree_sum.hpp"

namespace perturbmap {

const double* TreeSum::select(std::size_t copy, std::size_t example) {
    forest_.select(example);
    return forest_.batch().unary_of(copy, example);
}

double TreeSum::sum(std::size_t copy, std::size_t example, double weight, double* unary_marginals, double* pairwise,
                    std::size_t stride) {
    const double* unary = select(copy, example);
    if (scaled_.sweep(unary)) {
        scaled_.marginals(weight, unary_marginals, pairwise, stride);
        return scaled_.log_partition();
    }
    log_.sweep(unary);
    log_.marginals(weight, unary_marginals, pairwise, stride);
    return log_.log_partition();
}

void TreeSum::pinned_values(std::size_t copy, std::size_t example, double* values) {
    const double* unary = select(copy, example);
    if (scaled_.sweep(unary) && scaled_.pinned_values(unary, values)) return;
    log_.sweep(unary);
    log_.pinned_values(values);
}

void TreeSum::pinned_moments(std::size_t copy, std::size_t example, const double* weights, double* unary_moments,
                             double* pairwise, std::size_t stride) {
    const double* unary = select(copy, example);
    if (scaled_.sweep(unary)) {
        scaled_.pinned_moments(weights, unary_moments, pairwise, stride);
        return;
    }
    log_.sweep(unary);
    log_.pinned_moments(weights, unary_moments, pairwise, stride);
}

}  // namespace perturbmap
