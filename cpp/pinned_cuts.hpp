// All pinned maximisers of a binary supermodular function, from one maximum flow.
//
// Problem.    y is the free maximiser. For every site d: what is the best labelling with y_d flipped,
//             and how much worse is it (the gap of d)?
// Facts.      (1) Pinned solutions are monotone: flipping a 0 to 1 turns only further 0s to 1s, so the
//             two sides of the cut are two separate problems.
//             (2) On one side, flipping a set S costs
//                     F(S) = sum of terminal residuals t[x] over S + residual arcs that leave S,
//             so the gap of d is min { F(S) : d in S }: a minimum cut between d and the terminal, and
//             the flipped set S_d is its least minimiser. In particular gap(d) <= F({d}).
//             (3) If x is in S_d then S_x lies inside S_d and gap(x) <= gap(d). So a settled p whose gap
//             is above any bound on gap(d) is outside S_d: for d it is as good as the terminal.
//             (4) Let d be in S_q. Then S_d lies inside S_q, and if it holds q it is S_q. So take all
//             that lies outside S_q, and q itself, for terminals: a flow from d of more than gap(q)
//             proves S_d = S_q, and otherwise the cut that stops it is S_d.
// Method.     Each pin is a push-relabel from d that touches only what the flow needs, and puts back
//             what it touched: a pin among many is the pin solved alone. Most pins need no search: the
//             arcs of d end in residuals or terminals that take them. The others are settled in
//             descending order of F({d}); once S_q is known, all its members are settled before
//             anything else, by (4). Equal sets are stored once: at strong coupling whole regions flip
//             together, and the sum of the sizes of the different sets stays a small multiple of D
//             where that of all sets does not.
// Ties.       The flipped set is the least one: the pinned maximiser nearest to the free one.
// References. Goldberg and Tarjan 1988 (push-relabel), Cherkassky and Goldberg 1997 (gap relabelling);
//             Kohli and Torr 2007 solve the same family by re-using the flow between full solves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "max_flow.hpp"

namespace perturbmap {

// The pinned maximisers as the sets of sites that flip with each site; equal sets are stored once.
struct CutPins {
    std::vector<std::uint8_t> free;          // labels of the free maximiser
    std::vector<std::int32_t> set_of;        // the set of each settled site; -1 for the others
    std::vector<std::size_t> set_begin;      // set s is members[set_begin[s]], ... up to the next
    std::vector<std::int32_t> members;
    std::vector<std::size_t> inner_begin;    // the edges with both ends in set s, in the same way
    std::vector<std::int32_t> inner_edges;

    // Adds sum_{d,k} weights[d,k] * indicators of the maximiser pinned at (d, k) to `unary` (n_sites, 2) and to
    // the tables of `pairwise` (row = label of edges[e][0]).
    void add_moments(std::int32_t first_site, const std::int32_t* edges, std::size_t n_edges, const double* weights,
                     double* unary, double* pairwise, std::size_t stride) const;
};

class PinnedCuts {
   public:
    // Settles every wanted site (all where `wanted` is null) of the solved flow. `given` as in MaxFlow:
    // given sites are not flipped and get an infinite gap. The flow is used as work space and is as
    // before when the call returns.
    void run(MaxFlow& flow, const std::uint8_t* wanted, const std::int32_t* given);

    // How much the maximum drops when the site is flipped; NaN for a site that was not settled.
    double gap(int site) const { return gap_[site]; }

    // The maximisers of the settled pins.
    CutPins pins(const MaxFlow& flow) const;

   private:
    static constexpr double infinity = std::numeric_limits<double>::infinity();
    static constexpr std::int32_t unseen = -1, closed = -2;

    // What a search reads of a site.
    struct Node {
        double room;         // t[x]
        double excess;
        double sink_gap;     // its gap once settled; -inf before; +inf for those with the frame's set
        std::int32_t level;  // distance from the excess in the present search; closed: of the other side,
                             // or flipped
        std::int32_t frame;  // depth of the innermost open frame that holds it
    };

    // A set whose members are being settled. Frame 0 is the whole side.
    struct Frame {
        double gap;
        std::int32_t set;      // -1: the whole side
        std::size_t position;  // members before this one are settled
    };

    void settle_side(const std::uint8_t* wanted);
    void settle(std::int32_t d);
    void settle_as(std::int32_t d, std::int32_t set, double gap);
    void settle_alone(std::int32_t d);
    void open_frame(std::int32_t d);
    void close_frame();
    bool search(std::int32_t d, double enough);
    void flip(std::int32_t x);
    void flip_overwhelmed();
    double absorb(Node& node, double flow);
    template <class Push>
    void push_active(Push push);
    void push_through(std::int32_t arc, double flow);
    double push_nearby(std::int32_t x, double limit, int depth);
    bool find_levels();
    double push_from(std::int32_t x, double limit);
    void keep_flow(std::int32_t d);
    void restore();

    bool is_sink(const Node& node) const { return node.sink_gap >= sink_from_ || node.frame != frame_; }

    Arc* arcs_ = nullptr;                 // of the flow; the arcs of x are [first_[x], first_[x + 1])
    const std::int32_t* first_ = nullptr;
    std::vector<Node> nodes_;
    std::vector<std::int32_t> current_arc_;
    std::vector<double> alone_;        // F({x})
    std::vector<std::int32_t> order_;  // pins to search for, in descending order of alone_
    std::vector<Frame> frames_;
    std::int32_t frame_ = 0;           // depth of the innermost frame

    // Of the current search.
    struct Change {
        double* where;
        double before;
    };
    std::vector<Change> changes_;
    std::vector<std::int32_t> flipped_, active_, reached_;
    std::int32_t last_level_ = 0;
    double absorbed_ = 0;
    double sink_from_ = 0;             // settled pins of at least this gap are terminals
    bool borrowed_ = false;            // whether a terminal took more than its residual

    std::vector<double> gap_;
    std::vector<std::int32_t> set_of_, members_;
    std::vector<std::size_t> set_begin_;
    std::size_t n_sets() const { return set_begin_.size() - 1; }
};

}  // namespace perturbmap
