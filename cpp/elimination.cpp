#include "elimination.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "elementary.hpp"
#include "pin_values.hpp"
#include "simd.hpp"

namespace perturbmap {

namespace {

// m = log(exp a + exp b), entry by entry.
PERTURBMAP_SIMD
void log_sum_of_two(std::size_t n, const double* a, const double* b, double* m) {
    for (std::size_t i = 0; i < n; ++i) {
        const double low = a[i] < b[i] ? a[i] : b[i], high = a[i] < b[i] ? b[i] : a[i];
        m[i] = high + log_of(1.0 + exp_of(low - high));
    }
}

// m = log sum_k exp psi[k], entry by entry.
PERTURBMAP_SIMD
void log_sum(std::size_t k, std::size_t n, const double* psi, double* m) {
    for (std::size_t i = 0; i < n; ++i) {
        double high = psi[i], total = 0;
        for (std::size_t l = 1; l < k; ++l) high = high < psi[l * n + i] ? psi[l * n + i] : high;
        for (std::size_t l = 0; l < k; ++l) total += exp_of(psi[l * n + i] - high);
        m[i] = high + log_of(total);
    }
}

// p = weight * exp(psi - m), entry by entry.
PERTURBMAP_SIMD
void probabilities(std::size_t n, const double* psi, const double* m, const double* weight, double* p) {
    for (std::size_t i = 0; i < n; ++i) {
        const double x = psi[i] - m[i];
        p[i] = weight[i] * exp_of(x < 0 ? x : 0.0);
    }
}

std::size_t power(std::size_t base, std::size_t exponent) {
    std::size_t result = 1;
    while (exponent-- > 0) result *= base;
    return result;
}

}  // namespace

std::size_t Elimination::max_width(std::size_t n_labels, std::size_t max_entries) {
    std::size_t width = 0;
    for (std::size_t entries = n_labels; n_labels > 1 && entries <= max_entries / n_labels; entries *= n_labels) ++width;
    return n_labels > 1 ? width : 64;
}

bool Elimination::select(std::size_t example) {
    if (example == example_) return fits_;
    if (example_ == no_example || !is_same_graph(example)) fits_ = plan(example);
    example_ = example;
    return fits_;
}

bool Elimination::is_same_graph(std::size_t example) const {
    const std::size_t n = batch_.sites(example), m = batch_.n_edges(example);
    if (planned_given_.size() != n || planned_edges_.size() != 2 * m) return false;
    const std::int32_t* edges = batch_.edges_of(example);
    const std::int32_t* given = batch_.given_of(example);
    const std::int32_t first = static_cast<std::int32_t>(batch_.first_site(example));
    for (std::size_t h = 0; h < 2 * m; ++h)
        if (planned_edges_[h] != edges[h] - first) return false;
    for (std::size_t i = 0; i < n; ++i)
        if (planned_given_[i] != (given && given[i] >= 0)) return false;
    return true;
}

bool Elimination::plan(std::size_t example) {
    const std::size_t n = batch_.sites(example), m = batch_.n_edges(example), k = batch_.n_labels;
    const std::int32_t* edges = batch_.edges_of(example);
    const std::int32_t* given = batch_.given_of(example);
    const std::int32_t first = static_cast<std::int32_t>(batch_.first_site(example));
    planned_edges_.resize(2 * m);
    for (std::size_t h = 0; h < 2 * m; ++h) planned_edges_[h] = edges[h] - first;
    planned_given_.resize(n);
    for (std::size_t i = 0; i < n; ++i) planned_given_[i] = given && given[i] >= 0;

    const EliminationOrder order = elimination_order(n, first, edges, m, given, max_width(k, max_entries_), false);
    steps_.clear();
    if (!order.cut.empty()) return false;
    step_of_.assign(n, -1);
    for (std::size_t s = 0; s < order.steps.size(); ++s) step_of_[order.steps[s].site] = static_cast<std::int32_t>(s);
    std::size_t n_psi = 0, n_m = 0;
    for (const EliminationStep& each : order.steps) {
        Step step{each.site, each.neighbours, power(k, each.neighbours.size()), n_psi, n_m, {}};
        std::sort(step.scope.begin(), step.scope.end(),
                  [this](std::int32_t a, std::int32_t b) { return step_of_[a] < step_of_[b]; });
        n_psi += step.rows * k;
        n_m += step.rows;
        if (n_psi > max_entries_) return false;
        steps_.push_back(std::move(step));
    }
    for (std::size_t e = 0; e < m; ++e) {
        const std::int32_t i = planned_edges_[2 * e], j = planned_edges_[2 * e + 1];
        if (planned_given_[i] || planned_given_[j]) continue;
        const bool is_turned = step_of_[j] < step_of_[i];
        Step& step = steps_[step_of_[is_turned ? j : i]];
        Term t = term(step, {is_turned ? i : j});
        t.edge = static_cast<std::int32_t>(e);
        t.is_turned = is_turned;
        step.terms.push_back(std::move(t));
    }
    for (std::size_t s = 0; s < steps_.size(); ++s) {
        if (steps_[s].scope.empty()) continue;
        Step& above = steps_[step_of_[steps_[s].scope.front()]];
        Term t = term(above, std::vector<std::int32_t>(steps_[s].scope.begin() + 1, steps_[s].scope.end()));
        t.step = static_cast<std::int32_t>(s);
        above.terms.push_back(std::move(t));
    }
    psi_.resize(n_psi);
    m_.resize(n_m);
    weight_.resize(n_m);
    return true;
}

// How a table over the step's site and `scope`, some of its neighbours, lies beside the step's own.
Elimination::Term Elimination::term(const Step& step, const std::vector<std::int32_t>& scope) const {
    const std::size_t k = batch_.n_labels;
    Term t{-1, -1, false, 1, false, {}, power(k, scope.size())};
    std::vector<std::size_t> strides(step.scope.size(), 0);
    std::size_t stride = t.size;
    for (std::size_t axis = 0, next = 0; axis < step.scope.size() && next < scope.size(); ++axis)
        if (step.scope[axis] == scope[next]) {
            strides[axis] = stride /= k;
            ++next;
        }
    // A run: the fastest axes, as long as they all belong to the term, or none does.
    t.is_constant = !strides.empty() && strides.back() == 0;
    while (!strides.empty() && (strides.back() == 0) == t.is_constant) {
        t.run *= k;
        strides.pop_back();
    }
    t.strides = std::move(strides);
    return t;
}

// Calls visit(first row, where the term begins) for all runs of the rows.
template <class Visit>
void Elimination::for_each_run(const Term& term, std::size_t rows, Visit visit) const {
    const std::size_t k = batch_.n_labels, n_axes = term.strides.size();
    digits_.assign(n_axes, 0);
    std::size_t at = 0;
    for (std::size_t row = 0; row < rows; row += term.run) {
        visit(row, at);
        for (std::size_t axis = n_axes; axis-- > 0;) {
            at += term.strides[axis];
            if (++digits_[axis] < k) break;
            digits_[axis] = 0;
            at -= k * term.strides[axis];
        }
    }
}

// Unary potentials of the free sites with what their given neighbours add, and all that is constant.
void Elimination::load(const double* unary) {
    const std::size_t n = batch_.sites(example_), k = batch_.n_labels;
    const std::int32_t* given = batch_.given_of(example_);
    unary_.assign(unary, unary + n * k);
    constant_ = 0;
    if (!given) return;
    for (std::size_t i = 0; i < n; ++i)
        if (given[i] >= 0) constant_ += unary[i * k + static_cast<std::size_t>(given[i])];
    const Tables tables = batch_.tables_of(example_);
    for (std::size_t e = 0; 2 * e < planned_edges_.size(); ++e) {
        const std::int32_t i = planned_edges_[2 * e], j = planned_edges_[2 * e + 1];
        const std::size_t a = static_cast<std::size_t>(given[i]), b = static_cast<std::size_t>(given[j]);
        const double* t = tables[e];
        if (given[i] >= 0 && given[j] >= 0)
            constant_ += t[a * k + b];
        else if (given[i] >= 0)
            for (std::size_t l = 0; l < k; ++l) unary_[static_cast<std::size_t>(j) * k + l] += t[a * k + l];
        else if (given[j] >= 0)
            for (std::size_t l = 0; l < k; ++l) unary_[static_cast<std::size_t>(i) * k + l] += t[l * k + b];
    }
}

// The table of a term, the site's label as its slowest axis. Valid until the next call.
const double* Elimination::values(const Term& term) {
    if (term.step >= 0) return m_.data() + steps_[term.step].m;
    const std::size_t k = batch_.n_labels;
    const double* t = batch_.tables_of(example_)[static_cast<std::size_t>(term.edge)];
    if (!term.is_turned) return t;
    turned_.resize(k * k);
    for (std::size_t a = 0; a < k; ++a)
        for (std::size_t b = 0; b < k; ++b) turned_[b * k + a] = t[a * k + b];
    return turned_.data();
}

double Elimination::sum(std::size_t copy) {
    const std::size_t k = batch_.n_labels;
    load(batch_.unary_of(copy, example_));
    double total = constant_;
    for (const Step& step : steps_) {
        double* const psi = psi_.data() + step.psi;
        for (std::size_t l = 0; l < k; ++l)
            std::fill_n(psi + l * step.rows, step.rows, unary_[static_cast<std::size_t>(step.site) * k + l]);
        for (const Term& term : step.terms) {
            const double* const table = values(term);
            for (std::size_t l = 0; l < k; ++l) {
                double* const out = psi + l * step.rows;
                const double* const in = table + l * term.size;
                for_each_run(term, step.rows, [&](std::size_t row, std::size_t at) {
                    if (term.is_constant)
                        for (std::size_t i = 0; i < term.run; ++i) out[row + i] += in[at];
                    else
                        for (std::size_t i = 0; i < term.run; ++i) out[row + i] += in[at + i];
                });
            }
        }
        double* const m = m_.data() + step.m;
        if (k == 2)
            log_sum_of_two(step.rows, psi, psi + step.rows, m);
        else
            log_sum(k, step.rows, psi, m);
        if (step.scope.empty()) total += m[0];
    }
    return total;
}

void Elimination::marginals(double weight, double* unary, double* pairwise, std::size_t stride) {
    const std::size_t n = batch_.sites(example_), k = batch_.n_labels;
    const std::int32_t* given = batch_.given_of(example_);
    std::fill(weight_.begin(), weight_.end(), 0.0);
    std::fill_n(unary, n * k, 0.0);
    for (std::size_t s = steps_.size(); s-- > 0;) {
        const Step& step = steps_[s];
        if (step.scope.empty()) weight_[step.m] = weight;
        probability_.resize(step.rows);
        for (std::size_t l = 0; l < k; ++l) {
            double* const p = probability_.data();
            probabilities(step.rows, psi_.data() + step.psi + l * step.rows, m_.data() + step.m, weight_.data() + step.m, p);
            double own = 0;
            for (std::size_t row = 0; row < step.rows; ++row) own += p[row];
            unary[static_cast<std::size_t>(step.site) * k + l] = own;
            for (const Term& term : step.terms) {
                double* out;
                std::size_t next = 1;  // from one label of the neighbour to the next
                if (term.step >= 0) {
                    out = weight_.data() + steps_[term.step].m + l * term.size;
                } else {
                    out = pairwise + static_cast<std::size_t>(term.edge) * stride + (term.is_turned ? l : l * k);
                    next = term.is_turned ? k : 1;
                }
                for_each_run(term, step.rows, [&](std::size_t row, std::size_t at) {
                    if (term.is_constant) {
                        double total = 0;
                        for (std::size_t i = 0; i < term.run; ++i) total += p[row + i];
                        out[at * next] += total;
                    } else {
                        for (std::size_t i = 0; i < term.run; ++i) out[(at + i) * next] += p[row + i];
                    }
                });
            }
        }
    }
    if (!given) return;
    for (std::size_t i = 0; i < n; ++i)
        if (given[i] >= 0) unary[i * k + static_cast<std::size_t>(given[i])] = weight;
    for (std::size_t e = 0; 2 * e < planned_edges_.size(); ++e) {
        const std::size_t i = static_cast<std::size_t>(planned_edges_[2 * e]), j = static_cast<std::size_t>(planned_edges_[2 * e + 1]);
        if (given[i] < 0 && given[j] < 0) continue;
        for (std::size_t l = 0; l < k; ++l) {
            if (given[i] >= 0)
                pairwise[e * stride + static_cast<std::size_t>(given[i]) * k + l] += unary[j * k + l];
            else
                pairwise[e * stride + l * k + static_cast<std::size_t>(given[j])] += unary[i * k + l];
        }
    }
}

void Elimination::sample(const double* uniform, std::int32_t* labels) const {
    const std::size_t n = batch_.sites(example_), k = batch_.n_labels;
    const std::int32_t* given = batch_.given_of(example_);
    for (std::size_t i = 0; i < n; ++i) labels[i] = given ? given[i] : -1;
    for (std::size_t s = steps_.size(); s-- > 0;) {
        const Step& step = steps_[s];
        std::size_t row = 0;
        for (const std::int32_t j : step.scope) row = row * k + static_cast<std::size_t>(labels[j]);
        const double* const psi = psi_.data() + step.psi + row;
        const double m = m_[step.m + row];
        double left = uniform[step.site];
        std::size_t label = 0;
        while (label + 1 < k && (left -= std::exp(psi[label * step.rows] - m)) >= 0) ++label;
        while (label > 0 && psi[label * step.rows] == impossible) --label;  // rounding may leave it a rest
        labels[step.site] = static_cast<std::int32_t>(label);
    }
}

}  // namespace perturbmap
