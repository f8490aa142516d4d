#include "max_flow.hpp"

#include <algorithm>
#include <limits>

namespace perturbmap {

void MaxFlow::set_graph(int n_sites, std::int32_t first_site, const std::int32_t* edges, int n_edges,
                        Tables tables, const std::int32_t* given, bool solve_again) {
    const std::size_t n = static_cast<std::size_t>(n_sites), m = static_cast<std::size_t>(n_edges);
    nodes_.resize(n);
    tree_.resize(n);
    shift_.assign(n, 0.0);
    first_.assign(n + 1, 0);
    arcs_.resize(2 * m);
    edge_of_arc_.resize(2 * m);

    for (std::size_t k = 0; k < 2 * m; ++k) ++first_[static_cast<std::size_t>(edges[k] - first_site) + 1];
    for (std::size_t i = 0; i < n; ++i) first_[i + 1] += first_[i];
    // first_[i] now runs through the arcs of i while they are placed, and is moved back afterwards.
    for (std::size_t e = 0; e < m; ++e) {
        const std::int32_t i = edges[2 * e] - first_site, j = edges[2 * e + 1] - first_site;
        const std::int32_t a = first_[i]++, b = first_[j]++;
        edge_of_arc_[a] = edge_of_arc_[b] = static_cast<std::int32_t>(e);

        // T(y_i, y_j) = const + (T10 - T00 + h) y_i + (T01 - T00 + h) y_j - h [y_i != y_j]
        const double* t = tables[e];
        double half = std::max(0.0, 0.5 * ((t[0] - t[1]) + (t[3] - t[2])));
        shift_[i] += t[2] - t[0] + half;
        shift_[j] += t[1] - t[0] + half;
        if (given) {
            if (given[i] >= 0) shift_[j] += given[i] ? half : -half;
            if (given[j] >= 0) shift_[i] += given[j] ? half : -half;
            if (given[i] >= 0 || given[j] >= 0) half = 0.0;
        }
        arcs_[a] = {half, j, b};
        arcs_[b] = {half, i, a};
    }
    for (std::size_t i = n; i > 0; --i) first_[i] = first_[i - 1];
    first_[0] = 0;
    merge_parallel_arcs();
    initial_.clear();
    if (solve_again) {
        initial_.reserve(arcs_.size());
        for (const Arc& arc : arcs_) initial_.push_back(arc.capacity);
    }
    // A given site stands alone; an infinite excess keeps it on its side whatever its unary potentials.
    if (given)
        for (std::size_t i = 0; i < n; ++i)
            if (given[i] >= 0)
                shift_[i] = given[i] ? std::numeric_limits<double>::infinity()
                                     : -std::numeric_limits<double>::infinity();
}

// Gives the first of several arcs to the same site the capacity of all.
void MaxFlow::merge_parallel_arcs() {
    orphans_.assign(nodes_.size(), none);  // here: the first arc from the present site to each other one
    for (std::int32_t i = 0; i < n_sites(); ++i) {
        for (std::int32_t a = first_[i]; a < first_[i + 1]; ++a) {
            std::int32_t& first = orphans_[arcs_[a].head];
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
    for (std::size_t i = 0; i < nodes_.size(); ++i)
        nodes_[i].excess = (unary[2 * i + 1] - unary[2 * i]) + shift_[i];
    for (std::size_t a = 0; a < initial_.size(); ++a) arcs_[a].capacity = initial_[a];
    push_between_neighbours();
    grow_trees();
}

void MaxFlow::reverse() {
    for (std::size_t a = 0; a < arcs_.size(); ++a) {
        Arc& sister = arcs_[arcs_[a].sister];
        if (a < static_cast<std::size_t>(arcs_[a].sister)) std::swap(arcs_[a].capacity, sister.capacity);
    }
}

// Paths of one edge need no search, and at weak coupling they carry most of the flow.
void MaxFlow::push_between_neighbours() {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
        double excess = nodes_[i].excess;
        if (!(excess > 0)) continue;
        for (std::int32_t a = first_[i]; a < first_[i + 1]; ++a) {
            Arc& arc = arcs_[a];
            double& other = nodes_[arc.head].excess;
            if (!(other < 0)) continue;
            const double flow = std::min({excess, -other, arc.capacity});
            if (!(flow > 0)) continue;
            arc.capacity -= flow;
            arcs_[arc.sister].capacity += flow;
            other += flow;
            excess -= flow;
            if (!(excess > 0)) break;
        }
        nodes_[i].excess = excess;
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

void MaxFlow::grow_trees() {
    active_front_ = active_back_ = none;
    time_ = 0;
    const std::int32_t n = static_cast<std::int32_t>(nodes_.size());
    for (std::int32_t i = 0; i < n; ++i) {
        Node& node = nodes_[i];
        node.next_active = none;
        node.distance = 1;
        node.stamp = 0;
        node.parent = node.excess != 0 ? terminal : none;
        tree_[i] = node.excess > 0 ? source_tree : node.excess < 0 ? sink_tree : no_tree;
    }
    // No open arc leads from excess to deficit now, so the trees begin to grow where they can reach a site
    // that is in neither.
    for (std::int32_t i = 0; i < n; ++i) {
        if (tree_[i] != no_tree) continue;
        for (std::int32_t a = first_[i]; a < first_[i + 1]; ++a) {
            const std::int32_t j = arcs_[a].head;
            if (tree_[j] != no_tree && may_support(tree_[j], arcs_[a])) activate(j);
        }
    }
    while (active_front_ != none) {
        const std::int32_t i = active_front_, next = nodes_[i].next_active;
        active_front_ = next == i ? none : next;
        if (active_front_ == none) active_back_ = none;
        // Out of the queue before its scan: what happens behind the scan's back may activate it again.
        nodes_[i].next_active = none;
        int position = first_[i], meeting_arc = 0;
        while (tree_[i] != no_tree && grow(i, position, meeting_arc)) augment(meeting_arc);
    }
}

// Scans the arcs of an active site from `position` on. Returns true at an arc that meets the other tree.
bool MaxFlow::grow(std::int32_t i, int& position, int& meeting_arc) {
    const std::uint8_t mine = tree_[i];
    for (const int end = first_[i + 1]; position < end; ++position) {
        const Arc& arc = arcs_[position];
        const double open = mine == source_tree ? arc.capacity : arcs_[arc.sister].capacity;
        if (!(open > 0)) continue;
        const std::int32_t j = arc.head;
        if (tree_[j] == no_tree) {
            tree_[j] = mine;
            nodes_[j].parent = arc.sister;
            nodes_[j].stamp = nodes_[i].stamp;
            nodes_[j].distance = nodes_[i].distance + 1;
            activate(j);
        } else if (tree_[j] != mine) {
            meeting_arc = mine == source_tree ? position : arc.sister;
            return true;
        } else if (nodes_[j].stamp <= nodes_[i].stamp && nodes_[j].distance > nodes_[i].distance + 1) {
            nodes_[j].parent = arc.sister;  // a shorter way to the terminal
            nodes_[j].stamp = nodes_[i].stamp;
            nodes_[j].distance = nodes_[i].distance + 1;
        }
    }
    return false;
}

void MaxFlow::make_orphan(std::int32_t site) {
    nodes_[site].parent = orphan;
    orphans_.push_back(site);
}

// Pushes what the path source .. tail -> head .. sink can carry, then mends both trees.
void MaxFlow::augment(int meeting_arc) {
    const std::int32_t tail = arcs_[arcs_[meeting_arc].sister].head, head = arcs_[meeting_arc].head;
    double flow = arcs_[meeting_arc].capacity;
    std::int32_t root = tail;
    for (std::int32_t p; (p = nodes_[root].parent) != terminal; root = arcs_[p].head)
        flow = std::min(flow, arcs_[arcs_[p].sister].capacity);
    flow = std::min(flow, nodes_[root].excess);
    root = head;
    for (std::int32_t p; (p = nodes_[root].parent) != terminal; root = arcs_[p].head)
        flow = std::min(flow, arcs_[p].capacity);
    flow = std::min(flow, -nodes_[root].excess);

    orphans_.clear();
    arcs_[meeting_arc].capacity -= flow;
    arcs_[arcs_[meeting_arc].sister].capacity += flow;
    std::int32_t i = tail;
    for (std::int32_t p; (p = nodes_[i].parent) != terminal;) {
        const std::int32_t up = arcs_[p].head;
        arcs_[p].capacity += flow;
        if (!((arcs_[arcs_[p].sister].capacity -= flow) > 0)) make_orphan(i);
        i = up;
    }
    if (!((nodes_[i].excess -= flow) > 0)) make_orphan(i);
    i = head;
    for (std::int32_t p; (p = nodes_[i].parent) != terminal;) {
        const std::int32_t up = arcs_[p].head;
        arcs_[arcs_[p].sister].capacity += flow;
        if (!((arcs_[p].capacity -= flow) > 0)) make_orphan(i);
        i = up;
    }
    if (!((nodes_[i].excess += flow) < 0)) make_orphan(i);

    ++time_;
    for (std::size_t k = 0; k < orphans_.size(); ++k) adopt(orphans_[k]);
}

// Finds the orphan a new parent that is connected to the terminal, the nearest one; else sets it free.
void MaxFlow::adopt(std::int32_t i) {
    const std::uint8_t mine = tree_[i];
    constexpr std::int32_t never = std::numeric_limits<std::int32_t>::max();
    std::int32_t best = none, best_distance = never;
    for (std::int32_t a = first_[i]; a < first_[i + 1]; ++a) {
        const Arc& arc = arcs_[a];
        if (tree_[arc.head] != mine || !may_support(mine, arc)) continue;
        std::int32_t distance = 0, k = arc.head;
        while (true) {
            const Node& node = nodes_[k];
            if (node.stamp == time_) {
                distance += node.distance;
                break;
            }
            ++distance;
            if (node.parent == terminal) {
                nodes_[k].stamp = time_;
                nodes_[k].distance = 1;
                break;
            }
            if (node.parent == orphan) {
                distance = never;
                break;
            }
            k = arcs_[node.parent].head;
        }
        if (distance == never) continue;
        if (distance < best_distance) {
            best = a;
            best_distance = distance;
        }
        for (k = arc.head; nodes_[k].stamp != time_; k = arcs_[nodes_[k].parent].head) {
            nodes_[k].stamp = time_;
            nodes_[k].distance = distance--;
        }
    }
    nodes_[i].parent = best;
    if (best != none) {
        nodes_[i].stamp = time_;
        nodes_[i].distance = best_distance + 1;
        return;
    }
    tree_[i] = no_tree;
    for (std::int32_t a = first_[i]; a < first_[i + 1]; ++a) {
        const std::int32_t j = arcs_[a].head;
        if (tree_[j] != mine) continue;
        if (may_support(mine, arcs_[a])) activate(j);
        const std::int32_t p = nodes_[j].parent;
        if (p >= 0 && arcs_[p].head == i) make_orphan(j);
    }
}

}  // namespace perturbmap
