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
//             (3) Push a flow from d to residuals and add its amount to t[d]: F(S) is what it was for
//             every S. So no flow need ever be taken back, and at the end of a pin t[d] = gap(d).
//             (4) If x is in S_d then S_x lies inside S_d and gap(x) <= gap(d); if S_x holds d, they are
//             equal. Once d is settled no open arc leaves S_d, so the searches of its members, if they
//             come next, stay inside it.
//             (5) In the same way a settled p with gap(p) >= F({d}) is outside S_d: for d, and for all pins
//             that come after it in descending order of F({d}), it is as good as the terminal.
//             (6) A site that flips with no other one is as good as the terminal for all others: after its own pin,
//             what its arcs carried is given back to the residuals of its neighbours, and it is gone.
// Method.     Each pin is a maximum flow from d by augmenting paths, over one or two arcs without a search
//             where residuals are near, as most are; else in a search tree, whose sites look for other parents
//             when arcs above them are full. The pins follow each other from neighbour to
//             neighbour, and the members of S_d come right after d: what the last pin has gathered in
//             t is what the next one needs, and it lies next to it. Only at strong coupling do they come in
//             descending order of F({d}), outside the sets, for the sake of (5). Pins whose neighbours' residuals
//             take all that their arcs can carry are settled first, without a flow. Equal sets are
//             stored once: at strong coupling whole regions flip together, and the sum of the sizes of
//             the different sets stays a small multiple of D where that of all sets does not.
// Rounding.   F(S) bounds every residual and leaving arc of S at all times, so that what the flows of
//             other pins do to it is rounded relative to F(S), whatever the potentials elsewhere.
// Ties.       The flipped set is the least one: the pinned maximiser nearest to the free one.
// Memory.     For each arc, 16 bytes for a copy of the residual graph and 4 for its index; for each site about 68.
// References. Ford and Fulkerson 1956, Edmonds and Karp 1972 (shortest augmenting paths); Kohli and Torr
//             2007 re-use the flow between full solves of the same family; Boykov and Kolmogorov 2004 (adoption).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "cut_pins.hpp"
#include "residuals.hpp"

namespace perturbmap {

class PinnedCuts {
   public:
    // Settles every wanted site (all where `wanted` is null) of the solved flow. `given` as in MaxFlow:
    // given sites, and those whose excess is infinite, are not flipped, and get an infinite gap if they are wanted.
    void run(const MaxFlow& flow, const std::uint8_t* wanted, const std::int32_t* given);

    // The same in two steps, load() and settle_all(), where nothing is given and the flow has label 0 everywhere. Between
    // them, sites outside its graph can be settled, one by one, with which no other site flips (6). `alone` is F({d}) of such
    // a site; it falls by the capacity of a link if the site that it leads to flips too. The links of a site have at most
    // `alone` together. Returns the gap; the next set of pins() is the site's, which is in it by this number.
    struct Link {
        double capacity;
        std::int32_t site;
    };
    void load(const MaxFlow& flow, const std::uint8_t* wanted, const std::int32_t* given);
    double settle_outside(std::int32_t number, double alone, const std::vector<Link>& links);
    void settle_all();

    // How much the maximum drops when the site is flipped; NaN for a site that was not settled.
    double gap(int site) const { return gap_[site]; }

    // The gap of one site of a residual graph, in which the flow of its pin is left; the sites that flip are written, none
    // where the gap is infinite.
    double flip(Residuals& flow, std::int32_t site, std::vector<std::int32_t>& flipped);

    // The maximisers of the settled pins.
    CutPins pins() const { return {free_, set_of_, set_begin_, members_}; }

   private:
    static constexpr double infinity = std::numeric_limits<double>::infinity();
    static constexpr std::int32_t none = -1;
    static constexpr std::int32_t unreached = std::numeric_limits<std::int32_t>::max();

    struct Node {
        double room;          // t[x]
        std::int32_t parent;  // its arc to the site from which the present search reached it, or `none`
        std::int32_t place;   // its index in reached_, or `unreached`
    };

    // A set whose members are being settled.
    struct Frame {
        double gap;
        std::int32_t set;
        std::size_t position;  // members before this one are settled
    };

    enum class Outcome {
        alone,      // S_d = {d}
        cut,        // S_d is what the search reached
        same_set,   // S_d is the set of the innermost frame
        unfinished
    };

    void begin(std::int32_t n);
    void write_back(Residuals& flow) const;
    template <class Flow>
    void copy_sides(const Flow& flow, const std::uint8_t* wanted, const std::int32_t* given);
    void settle_trivial();
    void settle_along();
    void settle_descending();
    void settle_members();
    void settle(std::int32_t d);
    void settle_as(std::int32_t d, std::int32_t set, double gap);
    void settle_alone(std::int32_t d);
    bool flips_with_frame(std::int32_t d) const;
    double push_to_neighbours(std::int32_t d);
    double push_over_neighbours(std::int32_t d);
    Outcome search(std::int32_t d);
    Outcome search_once(std::int32_t d);
    std::int32_t scan(std::int32_t x);
    Outcome drain(std::int32_t y, std::int32_t d);
    std::int32_t augment(std::int32_t d, std::int32_t y);
    bool adopt(std::int32_t x, std::int32_t end);
    void repair(std::int32_t v);
    void cut_off(std::int32_t v);
    bool is_saturated(std::int32_t d) const;

    std::int32_t tail(std::int32_t arc) const { return arcs_[arcs_[arc].sister].head; }
    void push(Arc& arc, double flow) {
        arc.capacity -= flow;
        arcs_[arc.sister].capacity += flow;
    }

    std::vector<Arc, Unfilled<Arc>> arcs_;  // both sides; the arcs of x are [first_[x], first_[x + 1])
    std::vector<std::int32_t> first_;
    std::vector<std::int32_t> new_index_;  // of the flow's arcs in arcs_
    std::vector<Node> nodes_;
    std::vector<double> alone_;            // F({x})
    std::vector<std::int32_t> n_short_;    // arcs of a site that carry more than the residual of their head takes
    std::vector<std::uint8_t> pending_;    // sites still to be settled
    std::vector<std::int32_t> order_;      // sites to go on with
    std::vector<Frame> frames_;
    bool descending_ = false;
    std::vector<std::pair<double, std::int32_t>> by_gap_;  // heap of the settled pins that are no terminals yet

    // The search tree of the present pin: reached_[0, n_reached_), parents before their children, of which
    // those before n_scanned_ have been scanned.
    std::vector<std::int32_t> reached_, dead_;
    std::int32_t n_reached_ = 0, n_scanned_ = 0, n_dead_ = 0;
    int n_repairs_ = 0, n_broken_ = 0;  // of the present search; sites that the last path left without a parent

    std::vector<std::uint8_t> free_;  // labels of the free maximiser
    std::vector<double> gap_;
    std::vector<std::int32_t> set_of_, members_;
    std::vector<std::size_t> set_begin_;
    std::size_t n_sets() const { return set_begin_.size() - 1; }
};

}  // namespace perturbmap
