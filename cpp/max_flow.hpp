// Maximum of a binary supermodular pairwise function by one minimum cut.
//
// Problem.    maximise  sum_d excess[d] y_d - sum_{ij} capacity_ij [y_i != y_j]  over y in {0,1}^n.
//             Label 1 is the source side of the cut: a positive excess is an arc from the source, a
//             negative one an arc to the sink.
// Method.     Two search trees, one from each terminal, that grow towards each other; where they meet
//             the path is augmented, and nodes that lost their parent look for another one.
// Invariant.  Every node of the source tree is reached from the source by unsaturated arcs, every node
//             of the sink tree reaches the sink; parents are stored as arcs node -> parent.
// At the end. The source tree is the set of sites reachable from the source: the least maximiser, that
//             is, among tied maximisers the one with the fewest ones.
// Cost.       O(augmentations * n) in the worst case, near linear on planar graphs in practice.
// Memory.     40 bytes an edge (two arcs), 37 bytes a site; 16 bytes an edge more to solve again.
// Reference.  Boykov and Kolmogorov, An experimental comparison of min-cut/max-flow algorithms for
//             energy minimization in vision, PAMI 2004, section 3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace perturbmap {

// Pairwise tables in row-major order: `stride` is the table's size, or 0 where all edges share one.
struct Tables {
    const double* data = nullptr;
    std::size_t stride = 0;
    const double* operator[](std::size_t edge) const { return data + edge * stride; }
};

struct Arc {
    double capacity;      // what may still be pushed through it
    std::int32_t head;    // the site it leads to
    std::int32_t sister;  // the arc in the other direction
};

class MaxFlow {
   public:
    // Stores the graph and the pairwise tables (row = label of edges[e][0]). `edges` holds site numbers
    // of a batch, of which `first_site` is this example's first. `given` (or null) holds a label or -1
    // a site: given sites are folded into their neighbours, and their edges get no capacity. Only with
    // `solve_again` are the capacities kept for more than one call of solve().
    void set_graph(int n_sites, std::int32_t first_site, const std::int32_t* edges, int n_edges,
                   Tables tables, const std::int32_t* given, bool solve_again);

    // Maximises for one (n_sites, 2) array of unary potentials.
    void solve(const double* unary);

    int n_sites() const { return static_cast<int>(nodes_.size()); }
    int label(int site) const { return tree_[site] == source_tree; }
    double excess(int site) const { return nodes_[site].excess; }
    // The residual graph: the arcs of a site are arcs()[first_arcs()[site]], ... up to the next site's.
    Arc* arcs() { return arcs_.data(); }
    const std::int32_t* first_arcs() const { return first_.data(); }
    std::int32_t edge_of_arc(std::int32_t arc) const { return edge_of_arc_[arc]; }
    // Swaps the residual capacities of the two arcs of every edge.
    void reverse();

   private:
    static constexpr std::uint8_t no_tree = 0, source_tree = 1, sink_tree = 2;
    static constexpr std::int32_t terminal = -1, orphan = -2, none = -3;

    struct Node {
        double excess;              // > 0: residual arc from the source; < 0: residual arc to the sink
        std::int32_t parent;        // arc to the parent, or one of the constants above
        std::int32_t distance;      // upper estimate of the distance to the terminal ...
        std::int32_t stamp;         // ... made at this time
        std::int32_t next_active;   // next in the queue; itself at the end; none outside the queue
    };

    void merge_parallel_arcs();
    void push_between_neighbours();
    void grow_trees();
    void activate(std::int32_t site);
    bool grow(std::int32_t site, int& position, int& meeting_arc);
    void augment(int meeting_arc);
    void make_orphan(std::int32_t site);
    void adopt(std::int32_t site);
    // Whether the tree of `site` may be extended through `arc` from the arc's head to its tail.
    bool may_support(std::uint8_t tree, const Arc& arc) const {
        return tree == source_tree ? arcs_[arc.sister].capacity > 0 : arc.capacity > 0;
    }

    std::vector<Node> nodes_;
    std::vector<std::uint8_t> tree_;
    std::vector<std::int32_t> first_;         // arcs of a site: [first_[site], first_[site + 1])
    std::vector<Arc> arcs_;
    std::vector<std::int32_t> edge_of_arc_;
    std::vector<double> initial_;             // capacities to begin with, if wanted again
    std::vector<double> shift_;               // what the pairwise tables add to each site's excess
    std::vector<std::int32_t> orphans_;
    std::int32_t active_front_ = none, active_back_ = none, time_ = 0;
};

}  // namespace perturbmap
