#include "forest.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace perturbmap {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// The orders of chains shorter than this are kept for the whole batch, one for each length; of longer ones, where an
// order is cheap beside the sweeps over it, only the last.
constexpr std::size_t kept_lengths = 256;

}  // namespace

void transpose(std::size_t k, const double* table, double* out) {
    for (std::size_t i = 0; i < k; ++i)
        for (std::size_t j = 0; j < k; ++j) out[j * k + i] = table[i * k + j];
}

double normalise(std::size_t k, double* message) {
    const double top = *std::max_element(message, message + k);
    if (top == -infinity) return top;
    for (std::size_t i = 0; i < k; ++i) message[i] -= top;
    return top;
}

Forest::Forest(const Batch& batch) : batch_(batch), chains_(kept_lengths) {
    const std::size_t k = batch.n_labels;
    if (k > max_labels)
        throw std::invalid_argument("chains and trees take at most " + std::to_string(max_labels) + " labels");
    if (!batch.tables.are_shared()) return;
    shared_transposed_.resize(k * k);
    transpose(k, batch.tables.data, shared_transposed_.data());
}

void Forest::select(std::size_t example) {
    if (example == example_) return;
    example_ = no_example;
    const std::size_t n_sites = batch_.sites(example), n_edges = batch_.n_edges(example);
    const std::int32_t first_site = static_cast<std::int32_t>(batch_.first_site(example));
    const std::int32_t* edges = batch_.edges_of(example);
    if (!set_chain(n_sites, first_site, edges, n_edges) && !set_forest(n_sites, first_site, edges, n_edges))
        throw std::invalid_argument("the edges of example " + std::to_string(example) + " contain a cycle");
    tables_ = batch_.tables_of(example);
    given_ = batch_.given_of(example);
    example_ = example;
}

bool Forest::set_chain(std::size_t n_sites, std::int32_t first_site, const std::int32_t* edges, std::size_t n_edges) {
    if (n_edges + 1 != n_sites) return false;
    for (std::size_t h = 0; h < 2 * n_edges; ++h)
        if (edges[h] != first_site + static_cast<std::int32_t>((h + 1) / 2)) return false;
    auto& order = chains_[n_sites < chains_.size() ? n_sites : 0];
    if (!order || order->size() != n_sites) {
        std::vector<TreeSite> sites;
        sites.reserve(n_sites);
        for (std::int32_t p = 0, n = static_cast<std::int32_t>(n_sites); p < n; ++p)
            sites.push_back({p, p - 1, p - 1, false, p + 1, std::min(p + 2, n)});
        order = std::make_shared<const std::vector<TreeSite>>(std::move(sites));
    }
    order_ = order;
    roots_.assign(1, 0);
    return true;
}

bool Forest::set_forest(std::size_t n_sites, std::int32_t first_site, const std::int32_t* edges, std::size_t n_edges) {
    if (n_edges >= std::max<std::size_t>(1, n_sites)) return false;
    adjacency_first_.assign(n_sites + 1, 0);
    adjacency_.resize(2 * n_edges);  // edge number * 2 + (1 if the neighbour is the edge's first site)
    for (std::size_t h = 0; h < 2 * n_edges; ++h) ++adjacency_first_[static_cast<std::size_t>(edges[h] - first_site) + 1];
    for (std::size_t i = 0; i < n_sites; ++i) adjacency_first_[i + 1] += adjacency_first_[i];
    position_.assign(adjacency_first_.begin(), adjacency_first_.end() - 1);
    for (std::size_t e = 0; e < n_edges; ++e)
        for (std::size_t side = 0; side < 2; ++side)
            adjacency_[position_[edges[2 * e + side] - first_site]++] = static_cast<std::int32_t>(2 * e + side);

    std::vector<TreeSite> order;
    order.reserve(n_sites);
    roots_.clear();
    position_.assign(n_sites, -1);
    for (std::size_t root = 0; root < n_sites; ++root) {
        if (position_[root] >= 0) continue;
        roots_.push_back(order.size());
        position_[root] = static_cast<std::int32_t>(order.size());
        order.push_back({static_cast<std::int32_t>(root), -1, -1, false, 0, 0});
        for (std::size_t p = order.size() - 1; p < order.size(); ++p) {
            const std::int32_t site = order[p].site;
            order[p].first_child = static_cast<std::int32_t>(order.size());
            for (std::int32_t h = adjacency_first_[site]; h < adjacency_first_[site + 1]; ++h) {
                const std::int32_t edge = adjacency_[h] / 2, side = adjacency_[h] % 2;
                if (edge == order[p].edge) continue;
                const std::int32_t other = edges[2 * edge + 1 - side] - first_site;
                if (position_[other] >= 0) return false;
                position_[other] = static_cast<std::int32_t>(order.size());
                order.push_back({other, static_cast<std::int32_t>(p), edge, side == 1, 0, 0});
            }
            order[p].end_child = static_cast<std::int32_t>(order.size());
        }
    }
    // A new one each time: pins of the forest before may still hold theirs.
    order_ = std::make_shared<const std::vector<TreeSite>>(std::move(order));
    return true;
}

const double* Forest::table(const TreeSite& site, bool parent_is_row) {
    const double* stored = tables_[static_cast<std::size_t>(site.edge)];
    if (parent_is_row != site.parent_is_second) return stored;
    if (tables_.are_shared()) return shared_transposed_.data();
    const std::size_t k = n_labels();
    transposed_.resize(k * k);
    transpose(k, stored, transposed_.data());
    return transposed_.data();
}

void Forest::load(const double* unary, std::vector<double>& out) const {
    const std::size_t width = n_labels();
    out.resize(n_sites() * width);
    for (std::size_t p = 0; p < n_sites(); ++p) {
        const std::size_t site = static_cast<std::size_t>((*this)[p].site);
        double* u = out.data() + p * width;
        std::copy(unary + site * width, unary + (site + 1) * width, u);
        if (const std::int32_t label = given(p); label >= 0)
            for (std::size_t k = 0; k < width; ++k)
                if (static_cast<std::int32_t>(k) != label) u[k] = -infinity;
    }
}

void Forest::outside_of_children(std::size_t parent, const std::vector<double>& unary, const std::vector<double>& down,
                                 const std::vector<double>& message, std::vector<double>& outside) {
    const std::size_t first = static_cast<std::size_t>((*this)[parent].first_child), n = n_children(parent);
    const std::size_t width = n_labels();
    if (n == 0) return;
    double* out = outside.data() + first * width;
    for (std::size_t k = 0; k < width; ++k) out[k] = unary[parent * width + k] + down[parent * width + k];
    if (n == 1) return;
    // Sums before and after each child, rather than a difference, which would lose small terms.
    suffix_.assign(n * width, 0.0);
    for (std::size_t c = n - 1; c-- > 0;)
        for (std::size_t k = 0; k < width; ++k)
            suffix_[c * width + k] = suffix_[(c + 1) * width + k] + message[(first + c + 1) * width + k];
    for (std::size_t c = 1; c < n; ++c)
        for (std::size_t k = 0; k < width; ++k) out[c * width + k] = out[(c - 1) * width + k] + message[(first + c - 1) * width + k];
    for (std::size_t i = 0; i < n * width; ++i) out[i] += suffix_[i];
}

}  // namespace perturbmap
