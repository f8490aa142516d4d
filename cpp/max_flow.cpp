// (More than 300 lines, since one algorithm: growth, augmentation and adoption share the trees and their queues.)
#include "max_flow.hpp"

#include <algorithm>
#include <limits>

namespace perturbmap {

namespace {
// By value: std::min and std::max choose between references, which compilers turn into branches.
inline double smaller(double x, double y) { return x < y ? x : y; }
inline double larger(double x, double y) { return x > y ? x : y; }
inline double positive(double x) { return x > 0 ? x : 0; }
constexpr std::int32_t never = std::numeric_limits<std::int32_t>::max();
// How many sites the trees begin to grow from at once. Measured on a grid of 700 x 700 with mean edge weight 2: 133 ms
// with this number and 139 with a tenth of it, but 160 to 170 with a hundredth, with ten times as many and with all.
// With weight 0.5 it made no difference.
constexpr std::int32_t sites_at_once = 10000;

// Whether the edges (i, j) are in ascending order, with i < j: then none are parallel.
bool do_ascend(const std::int32_t* edges, std::size_t n_edges) {
    std::int64_t last = -1;
    for (std::size_t e = 0; e < n_edges; ++e) {
        const std::int64_t i = edges[2 * e], j = edges[2 * e + 1], both = i << 32 | j;
        if (i >= j || both <= last) return false;
        last = both;
    }
    return true;
}
}  // namespace

// Makes room for the arcs of every site; first_[i] is where those of i begin.
void MaxFlow::count_arcs(int n_sites, std::int32_t first_site, const std::int32_t* edges, std::size_t n_edges) {
    const std::size_t n = static_cast<std::size_t>(n_sites);
    nodes_.resize(n);
    first_.assign(n + 1, 0);
    arcs_.resize(2 * n_edges);
    for (std::size_t k = 0; k < 2 * n_edges; ++k) ++first_[static_cast<std::size_t>(edges[k] - first_site) + 1];
    std::int32_t max_degree = 0;
    for (std::size_t i = 0; i < n; ++i) {
        max_degree = std::max(max_degree, first_[i + 1]);
        first_[i + 1] += first_[i];
    }
    choice_.resize(static_cast<std::size_t>(max_degree) + 2);
    edges_.clear();
    orphans_.reserve(n);  // in place of many small steps
}

// T(y_i, y_j) = const + (T10 - T00 + h) y_i + (T01 - T00 + h) y_j - h [y_i != y_j]: returns h.
inline double MaxFlow::fold(const double* t, std::int32_t i, std::int32_t j, const std::int32_t* given) {
    double half = positive(0.5 * ((t[0] - t[1]) + (t[3] - t[2])));
    shift_[i] += t[2] - t[0] + half;
    shift_[j] += t[1] - t[0] + half;
    if (given) {
        if (given[i] >= 0) shift_[j] += given[i] ? half : -half;
        if (given[j] >= 0) shift_[i] += given[j] ? half : -half;
        if (given[i] >= 0 || given[j] >= 0) half = 0.0;
    }
    return half;
}

// A given site stands alone; an infinite excess keeps it on its side whatever its unary potentials.
void MaxFlow::fold_given(const std::int32_t* given) {
    if (!given) return;
    constexpr double infinity = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < nodes_.size(); ++i)
        if (given[i] >= 0) shift_[i] = given[i] ? infinity : -infinity;
}

// Calls task(e, i, j, arc, sister) for every edge in order: its sites, and where its arcs belong.
template <class Task>
void MaxFlow::for_each_edge(std::int32_t first_site, const std::int32_t* edges, std::size_t n_edges, Task task) {
    // first_[i] runs through the arcs of i, and is moved back afterwards.
    for (std::size_t e = 0; e < n_edges; ++e) {
        const std::int32_t i = edges[2 * e] - first_site, j = edges[2 * e + 1] - first_site;
        const std::int32_t a = first_[i]++, b = first_[j]++;
        task(e, i, j, a, b);
    }
    for (std::size_t i = nodes_.size(); i > 0; --i) first_[i] = first_[i - 1];
    first_[0] = 0;
}

// The arcs of every edge, with its capacity in both directions; of parallel ones, the first has that of all.
void MaxFlow::place_arcs(int n_sites, std::int32_t first_site, const std::int32_t* edges, std::size_t n_edges,
                         Tables tables, const std::int32_t* given) {
    count_arcs(n_sites, first_site, edges, n_edges);
    shift_.assign(nodes_.size(), 0.0);
    for_each_edge(first_site, edges, n_edges,
                  [&](std::size_t e, std::int32_t i, std::int32_t j, std::int32_t a, std::int32_t b) {
                      const double half = fold(tables[e], i, j, given);
                      arcs_[a] = {half, j, b};
                      arcs_[b] = {half, i, a};
                  });
    fold_given(given);
    if (!do_ascend(edges, n_edges)) merge_parallel_arcs();
}

void MaxFlow::set_graph(int n_sites, std::int32_t first_site, const std::int32_t* edges, int n_edges, Tables tables,
                        const std::int32_t* given) {
    const std::size_t m = static_cast<std::size_t>(n_edges);
    place_arcs(n_sites, first_site, edges, m, tables, given);
    edges_.reserve(m);
    for (std::int32_t a = 0; a < 2 * n_edges; ++a)
        if (a < arcs_[a].sister) edges_.push_back({arcs_[a].capacity, a, arcs_[a].sister});
}

void MaxFlow::solve_once(int n_sites, std::int32_t first_site, const std::int32_t* edges, int n_edges, Tables tables,
                         const std::int32_t* given, const double* unary) {
    const std::size_t m = static_cast<std::size_t>(n_edges);
    if (!do_ascend(edges, m)) {
        place_arcs(n_sites, first_site, edges, m, tables, given);
        return solve(unary);
    }
    count_arcs(n_sites, first_site, edges, m);
    // In the order of the edges, which is that of push_over_edges(): an arc is written once, with the capacity that the
    // push leaves it, and there are no loops over the arcs of a site, of which no processor could predict the end.
    // The first push needs the excess of all sites, so that the capacities are kept until then.
    shift_.assign(nodes_.size(), 0.0);
    capacities_.resize(m);
    for (std::size_t e = 0; e < m; ++e)
        capacities_[e] = fold(tables[e], edges[2 * e] - first_site, edges[2 * e + 1] - first_site, given);
    fold_given(given);
    set_excess(unary);
    for_each_edge(first_site, edges, m,
                  [&](std::size_t e, std::int32_t i, std::int32_t j, std::int32_t a, std::int32_t b) {
                      const double capacity = capacities_[e], flow = push_edge(capacity, nodes_[i], nodes_[j]);
                      arcs_[a] = {capacity - flow, j, b};
                      arcs_[b] = {capacity + flow, i, a};
                  });
    grow_from_zeros();
}

void MaxFlow::set_edges(int n_sites, std::int32_t first_site, const std::int32_t* edges, int n_edges) {
    const std::size_t m = static_cast<std::size_t>(n_edges);
    count_arcs(n_sites, first_site, edges, m);
    arc_of_.resize(m);
    for_each_edge(first_site, edges, m,
                  [&](std::size_t e, std::int32_t i, std::int32_t j, std::int32_t a, std::int32_t b) {
                      arcs_[a] = {0.0, j, b};
                      arcs_[b] = {0.0, i, a};
                      arc_of_[e] = a;
                  });
}

void MaxFlow::set_tables(Tables tables, const std::int32_t* given) {
    shift_.assign(nodes_.size(), 0.0);
    for (std::size_t e = 0; e < arc_of_.size(); ++e) {
        Arc &arc = arcs_[arc_of_[e]], &sister = arcs_[arc.sister];
        arc.capacity = sister.capacity = fold(tables[e], sister.head, arc.head, given);
    }
    fold_given(given);
}

void MaxFlow::set_capacities(int n_sites, const std::int32_t* edges, const double* capacities, int n_edges) {
    const std::size_t m = static_cast<std::size_t>(n_edges);
    count_arcs(n_sites, 0, edges, m);
    shift_.assign(nodes_.size(), 0.0);
    for_each_edge(0, edges, m, [&](std::size_t e, std::int32_t i, std::int32_t j, std::int32_t a, std::int32_t b) {
        arcs_[a] = {capacities[e], j, b};
        arcs_[b] = {capacities[e], i, a};
    });
}

// Gives the first of several arcs to the same site the capacity of all.
void MaxFlow::merge_parallel_arcs() {
    zeros_.assign(nodes_.size(), none);  // here: the first arc from the present site to each other one
    for (std::int32_t i = 0; i < n_sites(); ++i) {
        for (std::int32_t a = first_[i]; a < first_[i + 1]; ++a) {
            std::int32_t& first = zeros_[arcs_[a].head];
            if (first < first_[i]) {
                first = a;
            } else {
                arcs_[first].capacity += arcs_[a].capacity;
                arcs_[a].capacity = 0;
            }
        }
    }
}

void MaxFlow::solve(const double* unary) {
    set_excess(unary);
    push_over_edges();
    grow_from_zeros();
}

void MaxFlow::set_excess(const double* unary) {
    for (std::size_t i = 0; i < nodes_.size(); ++i)
        nodes_[i].excess = (unary[2 * i + 1] - unary[2 * i]) + shift_[i];
}

// The rest of a maximum flow, once all paths of one edge are full.
void MaxFlow::grow_from_zeros() {
    list_zeros();
    for (const std::int32_t i : zeros_) push_across(i);
    plant_trees();
    grow_trees();
}

// Pushes from i to j (or back, if negative) what excess, deficit and the capacity, equal in both
// directions, allow. Without branches: the signs are as good as random. (As -back, it would be compiled to some.)
inline double MaxFlow::push_edge(double capacity, Node& i, Node& j) {
    const double ei = i.excess, ej = j.excess;
    const double forth = smaller(positive(-ej), capacity), back = smaller(positive(ej), capacity);
    const double flow = larger(smaller(ei, forth), 0.0 - back);
    i.excess = ei - flow;
    j.excess = ej + flow;
    return flow;
}

// Pushes over all paths of one edge. No push opens one again, so that one round leaves none.
void MaxFlow::push_over_edges() {
    for (const Edge& edge : edges_) {
        Arc &arc = arcs_[edge.arc], &sister = arcs_[edge.sister];
        const double flow = push_edge(edge.capacity, nodes_[sister.head], nodes_[arc.head]);
        arc.capacity = edge.capacity - flow;
        sister.capacity = edge.capacity + flow;
    }
    if (edges_.empty()) {  // the same, in the same order
        for (std::int32_t i = 0; i < n_sites(); ++i) {
            for (std::int32_t a = first_[i]; a < first_[i + 1]; ++a) {
                Arc& arc = arcs_[a];
                if (arc.head <= i) continue;
                const double flow = push_edge(arc.capacity, nodes_[i], nodes_[arc.head]);
                arc.capacity -= flow;
                arcs_[arc.sister].capacity += flow;
            }
        }
    }
}

void MaxFlow::list_zeros() {
    zeros_.resize(nodes_.size());
    std::size_t n_zeros = 0;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
        zeros_[n_zeros] = static_cast<std::int32_t>(i);
        n_zeros += nodes_[i].excess == 0;
    }
    zeros_.resize(n_zeros);
}

// Pushes all it can over paths of two edges through the site. No push opens a path of one edge, nor one of two
// edges through a site that has had its turn, so that one round leaves none.
void MaxFlow::push_across(std::int32_t site) {
    // The ways in from the front of choice_, the ways out from its back.
    std::int32_t* const choice = choice_.data();
    std::size_t n_in = 0, out_end = choice_.size() - 1;
    for (std::int32_t a = first_[site], end = first_[site + 1]; a < end; ++a) {
        const double excess = nodes_[arcs_[a].head].excess;
        choice[n_in] = choice[out_end] = a;
        n_in += (excess > 0) & (arcs_[arcs_[a].sister].capacity > 0);
        out_end -= (excess < 0) & (arcs_[a].capacity > 0);
    }
    for (std::size_t k = 0, l = choice_.size() - 1; (k < n_in) & (l > out_end);) {
        Arc &back = arcs_[choice[k]], &in = arcs_[back.sister], &out = arcs_[choice[l]];
        Node &from = nodes_[back.head], &to = nodes_[out.head];
        const double flow = smaller(smaller(from.excess, in.capacity), smaller(-to.excess, out.capacity));
        from.excess -= flow;
        in.capacity -= flow;
        back.capacity += flow;
        out.capacity -= flow;
        arcs_[out.sister].capacity += flow;
        to.excess += flow;
        k += !((from.excess > 0) & (in.capacity > 0));
        l -= !((to.excess < 0) & (out.capacity > 0));
    }
}

// The trees to begin with, down to level 2. No open path of one or two edges leads from excess to deficit
// now, so that no site can belong to both, and the source tree can only grow on from level 2.
void MaxFlow::plant_trees() {
    for (Node& node : nodes_) {
        node.parent = terminal;
        node.level = (node.excess > 0) - (node.excess < 0);
        node.stamp = 0;
        node.next_active = none;
    }
    list_zeros();
    active_front_ = active_back_ = none;
    time_ = 0;
    std::int32_t* const choice = choice_.data();
    choice[0] = none;
    for (const std::int32_t i : zeros_) {
        // Without branches, as in push_across(): the open ways to a root from choice_[1] on, of which the last is taken.
        std::size_t n_open = 0;
        std::int32_t level = 0;
        for (std::int32_t a = first_[i], end = first_[i + 1]; a < end; ++a) {
            const std::int32_t root = nodes_[arcs_[a].head].level;
            const bool open = ((root == 1) & (arcs_[arcs_[a].sister].capacity > 0)) |
                              ((root == -1) & (arcs_[a].capacity > 0));
            choice[n_open + 1] = a;
            n_open += open;
            level = open ? 2 * root : level;
        }
        nodes_[i].parent = choice[n_open];
        nodes_[i].level = level;
    }
}

void MaxFlow::activate(std::int32_t site) {
    if (nodes_[site].next_active != none) return;
    nodes_[site].next_active = site;
    if (active_back_ == none)
        active_front_ = site;
    else
        nodes_[active_back_].next_active = site;
    active_back_ = site;
}

// The source tree alone would do: where it cannot grow, the labels are found. In batches, since what lies
// close together in memory is best done together.
void MaxFlow::grow_trees() {
    std::int32_t n_waiting = 0;
    for (const std::int32_t i : zeros_) {
        if (nodes_[i].level <= 0) continue;
        activate(i);
        if (++n_waiting < sites_at_once) continue;
        scan_active();
        n_waiting = 0;
    }
    scan_active();
}

void MaxFlow::scan_active() {
    while (active_front_ != none) {
        const std::int32_t i = active_front_, next = nodes_[i].next_active;
        active_front_ = next == i ? none : next;
        if (active_front_ == none) active_back_ = none;
        // Taken out of the queue before its scan, since an augmentation during the scan may activate it again.
        nodes_[i].next_active = none;
        if (nodes_[i].level > 0)
            scan<source>(i);
        else if (nodes_[i].level < 0)
            scan<sink>(i);
    }
}

// Extends the tree by the neighbours of a site, and augments where it meets the other tree.
template <MaxFlow::Side side>
void MaxFlow::scan(std::int32_t i) {
    const std::int32_t end = first_[i + 1];
    for (std::int32_t a = first_[i]; a < end;) {
        const Arc& arc = arcs_[a];
        Node& head = nodes_[arc.head];
        if (!((outwards<side>(arc) > 0) & (level_in<side>(head) <= 0))) {
            ++a;
        } else if (head.level == 0) {
            head.level = nodes_[i].level + (side == source ? 1 : -1);
            head.stamp = nodes_[i].stamp;
            head.parent = arc.sister;
            activate(arc.head);
            ++a;
        } else {
            augment(side == source ? a : arc.sister);
            if (level_in<side>(nodes_[i]) <= 0) return;
        }
    }
}

void MaxFlow::make_orphan(std::int32_t site) {
    nodes_[site].parent = orphan;
    orphans_.push_back(site);
}

template <MaxFlow::Side side>
double MaxFlow::bottleneck(std::int32_t i, double flow) const {
    for (std::int32_t p; (p = nodes_[i].parent) != terminal; i = arcs_[p].head)
        flow = std::min(flow, inwards<side>(arcs_[p]));
    return std::min(flow, side == source ? nodes_[i].excess : -nodes_[i].excess);
}

// Pushes along the path between the site and its terminal, then mends the tree.
template <MaxFlow::Side side>
void MaxFlow::push_to_terminal(std::int32_t i, double flow) {
    orphans_.clear();
    for (std::int32_t p; (p = nodes_[i].parent) != terminal;) {
        Arc &arc = arcs_[p], &sister = arcs_[arc.sister];
        double& open = side == source ? sister.capacity : arc.capacity;
        double& other = side == source ? arc.capacity : sister.capacity;
        open -= flow;
        other += flow;
        if (!(open > 0)) make_orphan(i);
        i = arc.head;
    }
    double& excess = nodes_[i].excess;
    excess -= side == source ? flow : -flow;
    if (excess == 0) make_orphan(i);
    for (std::size_t k = 0; k < orphans_.size(); ++k) adopt<side>(orphans_[k]);
}

// Pushes what the path source .. tail -> head .. sink can carry.
void MaxFlow::augment(std::int32_t meeting_arc) {
    Arc &arc = arcs_[meeting_arc], &sister = arcs_[arc.sister];
    const std::int32_t tail = sister.head, head = arc.head;
    const double flow = bottleneck<sink>(head, bottleneck<source>(tail, arc.capacity));
    arc.capacity -= flow;
    sister.capacity += flow;
    ++time_;
    push_to_terminal<source>(tail, flow);
    push_to_terminal<sink>(head, flow);
}

// The number of sites on the way to the terminal, which they remember; `never` if an orphan is among them.
std::int32_t MaxFlow::distance_to_terminal(std::int32_t site) {
    std::int32_t distance = 0, i = site;
    for (; nodes_[i].stamp != time_; i = arcs_[nodes_[i].parent].head) {
        ++distance;
        if (nodes_[i].parent == orphan) return never;
        if (nodes_[i].parent == terminal) break;
    }
    const bool is_source = nodes_[site].level > 0;
    if (nodes_[i].stamp == time_) distance += is_source ? nodes_[i].level : -nodes_[i].level;
    const std::int32_t result = distance;
    for (i = site; nodes_[i].stamp != time_; i = arcs_[nodes_[i].parent].head) {
        nodes_[i].stamp = time_;
        nodes_[i].level = is_source ? distance : -distance;
        --distance;
        if (nodes_[i].parent == terminal) break;
    }
    return result;
}

// An arc to a parent that is connected to the terminal, or none.
template <MaxFlow::Side side>
std::int32_t MaxFlow::find_parent(std::int32_t i) {
    const std::int32_t begin = first_[i], end = first_[i + 1];
    // First the one that was nearest when last seen: it is seldom wrong.
    std::int32_t best = none, nearest = never;
    for (std::int32_t a = begin; a < end; ++a) {
        const std::int32_t level = level_in<side>(nodes_[arcs_[a].head]);
        const bool better = (level < nearest) & may_adopt<side>(arcs_[a]);
        nearest = better ? level : nearest;
        best = better ? a : best;
    }
    if (best == none) return none;
    nearest = distance_to_terminal(arcs_[best].head);
    if (nearest == never) {
        best = none;
        for (std::int32_t a = begin; a < end; ++a) {
            if (!may_adopt<side>(arcs_[a])) continue;
            const std::int32_t distance = distance_to_terminal(arcs_[a].head);
            if (distance < nearest) {
                nearest = distance;
                best = a;
            }
        }
    }
    if (best != none) {
        nodes_[i].stamp = time_;
        nodes_[i].level = side == source ? nearest + 1 : -nearest - 1;
    }
    return best;
}

// Finds the orphan a new parent, or sets it free: then its children are orphans too.
template <MaxFlow::Side side>
void MaxFlow::adopt(std::int32_t i) {
    const std::int32_t parent = find_parent<side>(i);
    nodes_[i].parent = parent;
    if (parent != none) return;
    nodes_[i].level = 0;
    for (std::int32_t a = first_[i]; a < first_[i + 1]; ++a) {
        const std::int32_t j = arcs_[a].head;
        if (level_in<side>(nodes_[j]) <= 0) continue;
        if (nodes_[j].parent == arcs_[a].sister) make_orphan(j);
        if (inwards<side>(arcs_[a]) > 0) activate(j);
    }
}

}  // namespace perturbmap
