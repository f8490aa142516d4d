// Maximum of a binary supermodular pairwise function by one minimum cut.
//
// Problem.    maximise  sum_d excess[d] y_d - sum_{ij} capacity_ij [y_i != y_j]  over y in {0,1}^n.
//             Label 1 is the source side of the cut: a positive excess is an arc from the source, a
//             negative one an arc to the sink.
// Method.     Paths of one and two edges are pushed without a search: that is most of the flow at weak
//             coupling, and can be done nearly without branches, which would be mispredicted. Then two
//             search trees, one from each terminal; where the source tree meets the other the path is
//             augmented, and nodes that lost their parent look for another one.
// Invariant.  Every node of the source tree is reached from the source by unsaturated arcs, every node
//             of the sink tree reaches the sink; parents are stored as arcs node -> parent.
// At the end. The source tree is the set of sites reachable from the source: the least maximiser, that
//             is, among tied maximisers the one with the fewest ones.
// Cost.       O(augmentations * n) in the worst case, near linear on planar graphs in practice.
// Memory.     32 bytes for each edge (two arcs) and 40 for each site; 16 more for each edge to solve again,
//             8 for edges in ascending order that are solved once.
// Reference.  Boykov and Kolmogorov, An experimental comparison of min-cut/max-flow algorithms for
//             energy minimization in vision, PAMI 2004, section 3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "tables.hpp"

namespace perturbmap {

struct Arc {
    double capacity;      // what may still be pushed through it
    std::int32_t head;    // the site it leads to
    std::int32_t sister;  // the arc in the other direction
};

// For vectors that are filled right after resize(), which would otherwise write all their memory once more.
template <class T>
struct Unfilled : std::allocator<T> {
    template <class U>
    struct rebind {
        using other = Unfilled<U>;
    };
    template <class U>
    void construct(U*) {}
    template <class U, class... Args>
    void construct(U* at, Args&&... args) {
        ::new (static_cast<void*>(at)) U{std::forward<Args>(args)...};
    }
};

class MaxFlow {
   public:
    // Stores the graph and the pairwise tables (row = label of edges[e][0]). `edges` holds site numbers
    // of a batch, of which `first_site` is this example's first. `given` (or null) holds the label of
    // each site, or -1: given sites are folded into their neighbours, and their edges get no capacity. The
    // capacities are kept for any number of calls of solve().
    void set_graph(int n_sites, std::int32_t first_site, const std::int32_t* edges, int n_edges,
                   Tables tables, const std::int32_t* given);

    // set_graph() and solve() for one array of unary potentials, to the same bits; no capacities are kept.
    void solve_once(int n_sites, std::int32_t first_site, const std::int32_t* edges, int n_edges, Tables tables,
                    const std::int32_t* given, const double* unary);

    // The same in two steps, for many tables on one graph, which has no parallel edges: set_edges() once, then
    // set_tables() before each solve().
    void set_edges(int n_sites, std::int32_t first_site, const std::int32_t* edges, int n_edges);
    void set_tables(Tables tables, const std::int32_t* given);

    // For one solve() of a graph that is given by the capacities of its edges, of which none are parallel: its sites are
    // 0, 1, ..., and what the edges add to their excess is in the unary potentials.
    void set_capacities(int n_sites, const std::int32_t* edges, const double* capacities, int n_edges);

    // Maximises for one (n_sites, 2) array of unary potentials. One of a site's two may be -inf: that label is forbidden,
    // and the excess of the site is infinite.
    void solve(const double* unary);

    int n_sites() const { return static_cast<int>(nodes_.size()); }
    int label(int site) const { return nodes_[site].level > 0; }
    double excess(int site) const { return nodes_[site].excess; }
    // The residual graph: the arcs of a site are arcs()[first_arcs()[site]], ... up to the next site's.
    const Arc* arcs() const { return arcs_.data(); }
    const std::int32_t* first_arcs() const { return first_.data(); }

   private:
    static constexpr std::int32_t terminal = -1, orphan = -2, none = -3;
    enum Side { source = 0, sink = 1 };

    struct Node {
        double excess;             // > 0: residual arc from the source; < 0: residual arc to the sink
        std::int32_t parent;       // arc to the parent, or one of the constants above
        std::int32_t level;        // > 0 in the source tree, < 0 in the sink tree, 0 in neither; its size
                                   // estimates the distance to the terminal ...
        std::int32_t stamp;        // ... and was right at this time
        std::int32_t next_active;  // next in the queue; itself at the end; none outside the queue
    };

    struct Edge {  // capacity to begin with, and its two arcs
        double capacity;
        std::int32_t arc, sister;
    };

    void count_arcs(int n_sites, std::int32_t first_site, const std::int32_t* edges, std::size_t n_edges);
    double fold(const double* table, std::int32_t i, std::int32_t j, const std::int32_t* given);
    void fold_given(const std::int32_t* given);
    void place_arcs(int n_sites, std::int32_t first_site, const std::int32_t* edges, std::size_t n_edges, Tables tables,
                    const std::int32_t* given);
    template <class Task>
    void for_each_edge(std::int32_t first_site, const std::int32_t* edges, std::size_t n_edges, Task task);
    void merge_parallel_arcs();
    void set_excess(const double* unary);
    static double push_edge(double capacity, Node& i, Node& j);
    void push_over_edges();
    void grow_from_zeros();
    void list_zeros();
    void push_across(std::int32_t site);
    void plant_trees();
    void grow_trees();
    void scan_active();
    void activate(std::int32_t site);
    template <Side side> void scan(std::int32_t site);
    void augment(std::int32_t meeting_arc);
    template <Side side> double bottleneck(std::int32_t site, double flow) const;
    template <Side side> void push_to_terminal(std::int32_t site, double flow);
    template <Side side> void adopt(std::int32_t site);
    template <Side side> std::int32_t find_parent(std::int32_t site);
    std::int32_t distance_to_terminal(std::int32_t site);
    void make_orphan(std::int32_t site);
    // What can be pushed between a site and the head of its arc so that a tree grows from the site to the
    // head (outwards), or from the head to the site (inwards).
    template <Side side> double outwards(const Arc& arc) const {
        return side == source ? arc.capacity : arcs_[arc.sister].capacity;
    }
    template <Side side> double inwards(const Arc& arc) const {
        return side == source ? arcs_[arc.sister].capacity : arc.capacity;
    }
    // Whether the head of the arc may become its tail's parent: in the tree, open, and not its child.
    template <Side side> bool may_adopt(const Arc& arc) const {
        const Node& head = nodes_[arc.head];
        return (level_in<side>(head) > 0) & (inwards<side>(arc) > 0) & (head.parent != arc.sister);
    }
    // Distance from the terminal of `side`; zero or less outside its tree.
    template <Side side> static std::int32_t level_in(const Node& node) {
        return side == source ? node.level : -node.level;
    }

    std::vector<Node, Unfilled<Node>> nodes_;
    std::vector<std::int32_t> first_;         // arcs of a site: [first_[site], first_[site + 1])
    std::vector<Arc, Unfilled<Arc>> arcs_;
    std::vector<Edge> edges_;                 // if the capacities are wanted again
    std::vector<std::int32_t> arc_of_;        // of each edge, from its first site to its second: of set_edges()
    std::vector<double, Unfilled<double>> capacities_;  // of each edge to begin with, in solve_once() alone
    std::vector<double> shift_;               // what the pairwise tables add to each site's excess
    std::vector<std::int32_t, Unfilled<std::int32_t>> zeros_;  // sites without excess or deficit, before the trees grow
    std::vector<std::int32_t> choice_;        // ways in and out of one site
    std::vector<std::int32_t> orphans_;
    std::int32_t active_front_ = none, active_back_ = none, time_ = 0;
};

}  // namespace perturbmap
