// (More than 300 lines, since one algorithm: all pins are read off one residual graph, in two orders that share a search.)
#include "pinned_cuts.hpp"

#include <algorithm>
#include <cmath>

namespace perturbmap {

namespace {
// Sums of the same capacities in another order differ by rounding; beyond this they differ in fact.
constexpr double rounding = 1e-13;
// A search that mends its tree more often goes on by shortest paths alone, which always come to an end.
constexpr int max_repairs = 10000;
// With fewer trivial pins than one in so many, pins are settled in descending order. Measured on triangulations and
// grids of 144 to 20,000 sites: settling from neighbour to neighbour took 0.55 to 1.1 times as long with at least one
// in 50, 0.7 to 1.2 times as long with one in 50 to 1,000, and 0.8 to 2.6 times as long with fewer.
constexpr std::ptrdiff_t wanted_per_trivial = 64;
// In trees of more sites than this, one that lost its parent looks for another. Measured on triangulations of 150 and
// 2,000 sites: in smaller trees, which are scanned again as quickly, it costs 3 to 4% where coupling is moderate and
// gains nothing where it is strong; with twice the number, strong coupling takes 1% more.
constexpr std::int32_t large_tree = 12;

// Whether the site's other label is forbidden: it takes whatever flows to it, and is never flipped.
template <class Flow>
bool is_bound(const Flow& flow, std::int32_t x) { return std::isinf(flow.excess(x)); }
}  // namespace

void PinnedCuts::begin(std::int32_t n) {
    gap_.assign(n, std::numeric_limits<double>::quiet_NaN());
    set_of_.assign(n, -1);
    members_.clear();
    set_begin_.assign(1, 0);
    reached_.resize(n + 2);
    dead_.resize(n + 2);
    frames_.clear();
    descending_ = false;
}

void PinnedCuts::run(const MaxFlow& flow, const std::uint8_t* wanted, const std::int32_t* given) {
    load(flow, wanted, given);
    settle_all();
    for (std::int32_t x = 0; x < flow.n_sites(); ++x)
        if (((given && given[x] >= 0) || is_bound(flow, x)) && (!wanted || wanted[x])) gap_[x] = infinity;
}

void PinnedCuts::load(const MaxFlow& flow, const std::uint8_t* wanted, const std::int32_t* given) {
    begin(flow.n_sites());
    copy_sides(flow, wanted, given);
}

void PinnedCuts::settle_all() {
    const std::ptrdiff_t n_pending = std::count(pending_.begin(), pending_.end(), 1);
    settle_trivial();
    const std::ptrdiff_t n_left = std::count(pending_.begin(), pending_.end(), 1);
    // Where hardly any pin is trivial, coupling is strong, and residuals are far from most sites.
    if (n_pending - n_left < n_pending / wanted_per_trivial)
        settle_descending();
    else
        settle_along();
}

// The site is one more node while its pin is settled. The sisters of its arcs, which take what these carry, are in the range
// of no site: no search leads back to it.
double PinnedCuts::settle_outside(std::int32_t number, double alone, const std::vector<Link>& links) {
    const std::int32_t d = static_cast<std::int32_t>(nodes_.size()), begin = first_[d];
    const std::int32_t n_links = static_cast<std::int32_t>(links.size());
    double room = alone;
    bool is_alone = true;
    arcs_.resize(begin + 2 * n_links);
    for (std::int32_t i = 0; i < n_links; ++i) {
        const auto [capacity, x] = links[i];
        arcs_[begin + i] = {capacity, x, begin + n_links + i};
        arcs_[begin + n_links + i] = {0.0, d, begin + i};
        room -= capacity;
        is_alone &= capacity <= nodes_[x].room;
    }
    if (is_alone) {
        members_.push_back(number);
        set_begin_.push_back(members_.size());
        return alone;
    }
    first_.push_back(begin + n_links);
    nodes_.push_back({room, none, unreached});
    alone_.push_back(alone);
    pending_.push_back(1);
    set_of_.push_back(none);
    gap_.push_back(alone);
    settle(d);
    frames_.clear();  // of the sites that flip with it none is pending on its account
    for (std::int32_t i = 0; i < n_links; ++i) nodes_[links[i].site].room += arcs_[begin + n_links + i].capacity;
    members_[set_begin_[set_of_[d]]] = number;  // it comes first in its set
    const double gap = gap_[d];
    first_.pop_back();
    nodes_.pop_back();
    alone_.pop_back();
    pending_.pop_back();
    set_of_.pop_back();
    gap_.pop_back();
    return gap;
}

double PinnedCuts::flip(Residuals& flow, std::int32_t site, std::vector<std::int32_t>& flipped) {
    flipped.clear();
    if (is_bound(flow, site)) return infinity;
    begin(flow.n);
    copy_sides(flow, nullptr, nullptr);
    settle(site);
    write_back(flow);
    flipped = members_;
    return gap_[site];
}

// Settles the pins from neighbour to neighbour.
void PinnedCuts::settle_along() {
    for (std::int32_t root = 0; root < static_cast<std::int32_t>(nodes_.size()); ++root) {
        if (!pending_[root]) continue;
        order_.assign(1, root);
        while (!order_.empty()) {
            const std::int32_t d = order_.back();
            order_.pop_back();
            if (!pending_[d]) continue;
            settle(d);
            settle_members();
            for (std::int32_t a = first_[d + 1]; a-- > first_[d];)
                if (pending_[arcs_[a].head]) order_.push_back(arcs_[a].head);
        }
    }
}

// Settles the pins in descending order of F({d}), and makes terminals of those that (5) allows.
void PinnedCuts::settle_descending() {
    descending_ = true;
    order_.clear();
    by_gap_.clear();
    for (std::int32_t x = 0; x < static_cast<std::int32_t>(nodes_.size()); ++x) {
        if (pending_[x]) order_.push_back(x);
        if (set_of_[x] >= 0) by_gap_.push_back({gap_[x], x});
    }
    std::make_heap(by_gap_.begin(), by_gap_.end());
    std::sort(order_.begin(), order_.end(), [this](std::int32_t x, std::int32_t y) {
        return alone_[x] != alone_[y] ? alone_[x] > alone_[y] : x < y;
    });
    for (const std::int32_t d : order_) {
        if (!pending_[d]) continue;
        for (; !by_gap_.empty() && by_gap_.front().first >= alone_[d]; by_gap_.pop_back()) {
            nodes_[by_gap_.front().second].room = infinity;
            std::pop_heap(by_gap_.begin(), by_gap_.end());
        }
        settle(d);
        settle_members();
    }
}

// Copies the residual graph without the arcs between the sides. Flipping a set costs what leaves it: on
// side 0 its residual arcs, on side 1, where the cut runs the other way, their sisters. Goes through all arcs at once,
// not from site to site: where the arcs of a site end, no processor could predict.
template <class Flow>
void PinnedCuts::copy_sides(const Flow& flow, const std::uint8_t* wanted, const std::int32_t* given) {
    const std::int32_t n = flow.n_sites();
    const auto arcs = flow.arcs();
    const std::int32_t* first = flow.first_arcs();
    const std::int32_t n_arcs = first[n];
    arcs_.resize(n_arcs + 1);  // one more: arcs that are left out are written, and then written over
    new_index_.resize(n_arcs + 1);
    first_.resize(n + 1);
    nodes_.resize(n);
    alone_.resize(n);
    n_short_.assign(n, 0);
    pending_.resize(n);
    free_.resize(n);
    for (std::int32_t x = 0; x < n; ++x) {
        const bool is_given = given && given[x] >= 0;
        free_[x] = static_cast<std::uint8_t>(flow.label(x));
        alone_[x] = is_given ? 0.0 : std::abs(flow.excess(x));
        nodes_[x] = {alone_[x], 0, unreached};
        pending_[x] = !is_given && !is_bound(flow, x) && !(wanted && !wanted[x]);
    }
    std::int32_t k = 0;
    for (std::int32_t a = 0; a < n_arcs; ++a) {
        const Arc arc = arcs[a], sister = arcs[arc.sister];
        const std::uint8_t label = free_[sister.head];
        const double both[2] = {arc.capacity, sister.capacity};
        arcs_[k] = {both[label], arc.head, arc.sister};
        new_index_[a] = k;
        k += (free_[arc.head] == label) & ((both[0] > 0) | (both[1] > 0));
    }
    new_index_[n_arcs] = k;
    for (std::int32_t x = 0; x <= n; ++x) first_[x] = new_index_[first[x]];
    for (std::int32_t a = 0; a < k; ++a) {
        arcs_[a].sister = new_index_[arcs_[a].sister];
        const std::int32_t x = tail(a);
        alone_[x] += arcs_[a].capacity;
        n_short_[x] += arcs_[a].capacity > nodes_[arcs_[a].head].room;
    }
}

void PinnedCuts::write_back(Residuals& flow) const {
    for (std::int32_t x = 0; x < flow.n; ++x) {
        flow.rooms[x] = nodes_[x].room;
        for (std::int32_t a = flow.first[x], end = flow.first[x + 1]; a < end; ++a) {
            const std::int32_t k = new_index_[a];
            if (k < new_index_[a + 1]) flow.capacities[free_[x] ? flow.graph[a].sister : a] = arcs_[k].capacity;
        }
    }
}

// Settles the pins whose neighbours' own residuals take all they push.
void PinnedCuts::settle_trivial() {
    for (std::int32_t x = 0; x < static_cast<std::int32_t>(nodes_.size()); ++x)
        if (pending_[x] & (n_short_[x] == 0)) settle_alone(x);
}

// Settles the members of the set just found, of the sets found on the way, and so on.
void PinnedCuts::settle_members() {
    while (!frames_.empty()) {
        Frame& frame = frames_.back();
        if (frame.position == set_begin_[frame.set + 1]) {
            frames_.pop_back();
            continue;
        }
        const std::int32_t x = members_[frame.position++];
        if (pending_[x]) settle(x);
    }
}

void PinnedCuts::settle_as(std::int32_t d, std::int32_t set, double gap) {
    set_of_[d] = set;
    gap_[d] = gap;
    pending_[d] = 0;
    if (!descending_) return;
    by_gap_.push_back({gap, d});
    std::push_heap(by_gap_.begin(), by_gap_.end());
}

void PinnedCuts::settle_alone(std::int32_t d) {
    settle_as(d, static_cast<std::int32_t>(n_sets()), alone_[d]);
    members_.push_back(d);
    set_begin_.push_back(members_.size());
}

void PinnedCuts::settle(std::int32_t d) {
    if (flips_with_frame(d)) return settle_as(d, frames_.back().set, frames_.back().gap);
    if (!(push_to_neighbours(d) > 0)) return settle_alone(d);
    if (push_over_neighbours(d) <= rounding * alone_[d]) return settle_alone(d);
    const Outcome outcome = search(d);
    if (outcome == Outcome::alone) return settle_alone(d);
    const double frame_gap = frames_.empty() ? infinity : frames_.back().gap;
    if (outcome == Outcome::same_set) return settle_as(d, frames_.back().set, frame_gap);

    const double gap = std::min({nodes_[d].room, alone_[d], frame_gap});
    const std::int32_t set = static_cast<std::int32_t>(n_sets());
    settle_as(d, set, gap);
    members_.insert(members_.end(), reached_.begin(), reached_.begin() + n_reached_);
    set_begin_.push_back(members_.size());
    if (n_reached_ > 1) frames_.push_back({gap, set, set_begin_[set]});
}

// Whether it is seen from the neighbourhood of d that S_d is the set of the frame: it is, if more than the
// frame's gap can flow to residuals and, by (4), to any site that has this set.
bool PinnedCuts::flips_with_frame(std::int32_t d) const {
    if (frames_.empty()) return false;
    const std::int32_t set = frames_.back().set;
    const double enough = frames_.back().gap * (1 + rounding);
    if (!(alone_[d] > enough)) return false;
    double flow = nodes_[d].room;
    for (std::int32_t a = first_[d], last = first_[d + 1]; a < last; ++a) {
        const std::int32_t x = arcs_[a].head;
        double out = nodes_[x].room;
        if (set_of_[x] == set) out = infinity;
        else
            for (std::int32_t b = first_[x], end = first_[x + 1]; b < end; ++b)
                out += set_of_[arcs_[b].head] == set ? arcs_[b].capacity : 0.0;
        flow += std::min(arcs_[a].capacity, out);
    }
    return flow > enough;
}

// Pushes what the neighbours' residuals take; returns what the arcs of d could still carry. This and the
// next function have no branches on capacities, which no processor could predict.
double PinnedCuts::push_to_neighbours(std::int32_t d) {
    double left = 0, pushed = 0;
    for (std::int32_t a = first_[d], end = first_[d + 1]; a < end; ++a) {
        Arc& arc = arcs_[a];
        Node& head = nodes_[arc.head];
        const double flow = std::min(arc.capacity, head.room);
        head.room -= flow;
        push(arc, flow);
        pushed += flow;
        left += arc.capacity;
    }
    nodes_[d].room += pushed;
    return left;
}

// The same for the neighbours of the neighbours.
double PinnedCuts::push_over_neighbours(std::int32_t d) {
    const double own = nodes_[d].room;
    nodes_[d].room = 0;  // so that nothing comes back to d
    double left = 0, pushed = 0;
    for (std::int32_t a = first_[d], last = first_[d + 1]; a < last; ++a) {
        double rest = arcs_[a].capacity, through = 0;
        if (!(rest > 0)) continue;
        const std::int32_t x = arcs_[a].head;
        for (std::int32_t b = first_[x], end = first_[x + 1]; b < end; ++b) {
            Arc& next = arcs_[b];
            Node& head = nodes_[next.head];
            const double flow = std::min(rest, std::min(head.room, next.capacity));
            head.room -= flow;
            push(next, flow);
            rest -= flow;
            through += flow;
        }
        arcs_[a].capacity = rest;
        arcs_[arcs_[a].sister].capacity += through;
        pushed += through;
        left += rest;
    }
    nodes_[d].room = own + pushed;
    return left;
}

bool PinnedCuts::is_saturated(std::int32_t d) const {
    double left = 0;
    for (std::int32_t a = first_[d], end = first_[d + 1]; a < end; ++a) left += arcs_[a].capacity;
    return left <= rounding * alone_[d];
}

PinnedCuts::Outcome PinnedCuts::search(std::int32_t d) {
    n_repairs_ = 0;
    while (true) {
        const Outcome outcome = search_once(d);
        for (std::int32_t k = 0; k < n_reached_; ++k) nodes_[reached_[k]].place = unreached;
        if (outcome != Outcome::unfinished) return outcome;
    }
}

// Grows a tree of open arcs from d, breadth first, and pushes what it can to every residual it meets.
PinnedCuts::Outcome PinnedCuts::search_once(std::int32_t d) {
    // Where the flow is all that the frame allows, S_d is the frame's set if it meets a site that has it.
    const std::int32_t frame_set = frames_.empty() ? -1 : frames_.back().set;
    const double enough = frames_.empty() ? infinity : frames_.back().gap * (1 - rounding);
    bool is_enough = frame_set >= 0 && nodes_[d].room >= enough;
    reached_[0] = d;
    nodes_[d].place = 0;
    n_reached_ = 1;
    n_scanned_ = 0;
    while (n_scanned_ < n_reached_) {
        const std::int32_t x = reached_[n_scanned_];
        if (is_enough && set_of_[x] == frame_set) return Outcome::same_set;
        const std::int32_t y = scan(x);
        if (y < 0) {
            ++n_scanned_;
            continue;
        }
        const Outcome outcome = drain(y, d);
        if (outcome != Outcome::cut) return outcome;
        if (frame_set >= 0 && !is_enough && nodes_[d].room >= enough) {
            is_enough = true;
            for (std::int32_t k = 0; k < n_scanned_; ++k)
                if (set_of_[reached_[k]] == frame_set) return Outcome::same_set;
        }
    }
    return Outcome::cut;
}

// Adds to the tree what the arcs of x lead to, up to the first site with a residual, which is returned; -1
// where there is none. Free of unpredictable branches, as above.
std::int32_t PinnedCuts::scan(std::int32_t x) {
    Node* const nodes = nodes_.data();
    std::int32_t* const reached = reached_.data();
    std::int32_t count = n_reached_, found = -1;
    for (std::int32_t a = first_[x], end = first_[x + 1]; a < end; ++a) {
        const Arc& arc = arcs_[a];
        Node& head = nodes[arc.head];
        const bool is_new = (arc.capacity > 0) & (head.place == unreached);
        reached[count] = arc.head;
        head.parent = is_new ? arc.sister : head.parent;
        head.place = is_new ? count : head.place;
        count += is_new;
        if (is_new & (head.room > 0)) {
            found = arc.head;
            break;
        }
    }
    n_reached_ = count;
    return found;
}

// Pushes from d to y until y has no residual or is not in the tree any more.
PinnedCuts::Outcome PinnedCuts::drain(std::int32_t y, std::int32_t d) {
    while (nodes_[y].room > 0 && nodes_[y].place != unreached) {
        const std::int32_t broken = augment(d, y);
        if (broken < 0) break;
        if (tail(broken) == d && is_saturated(d)) return Outcome::alone;
        if (++n_repairs_ > max_repairs) return Outcome::unfinished;
        repair(arcs_[broken].head);
    }
    return Outcome::cut;
}

// Pushes what the tree's path from d to y can carry. The sites behind arcs that are full now lose their parents;
// returns the arc nearest to d of those, -1 where there is none.
std::int32_t PinnedCuts::augment(std::int32_t d, std::int32_t y) {
    double flow = nodes_[y].room;
    for (std::int32_t x = y; x != d; x = arcs_[nodes_[x].parent].head)
        flow = std::min(flow, arcs_[arcs_[nodes_[x].parent].sister].capacity);
    nodes_[y].room -= flow;
    nodes_[d].room += flow;
    std::int32_t broken = -1;
    n_broken_ = 0;
    for (std::int32_t x = y; x != d;) {
        const Arc& up = arcs_[nodes_[x].parent];
        Arc& down = arcs_[up.sister];
        push(down, flow);
        const bool is_full = !(down.capacity > 0);
        broken = is_full ? up.sister : broken;
        n_broken_ += is_full;
        nodes_[x].parent = is_full ? none : nodes_[x].parent;
        x = up.head;
    }
    return broken;
}

// Hangs x on a site before `end` with an open arc to it; whether there is one.
bool PinnedCuts::adopt(std::int32_t x, std::int32_t end) {
    for (std::int32_t a = first_[x], last = first_[x + 1]; a < last; ++a) {
        if (nodes_[arcs_[a].head].place >= end || !(arcs_[arcs_[a].sister].capacity > 0)) continue;
        nodes_[x].parent = a;
        return true;
    }
    return false;
}

// Mends the tree after v has lost its parent, the nearest to d of n_broken_ sites that have.
void PinnedCuts::repair(std::int32_t v) {
    if (n_reached_ > large_tree && n_broken_ == 1 && adopt(v, nodes_[v].place)) return;  // all below it stays
    cut_off(v);
    if (2 * n_dead_ > n_scanned_ + n_dead_) {  // to begin again is cheaper
        for (std::int32_t k = 1; k < n_reached_; ++k) nodes_[reached_[k]].place = unreached;
        n_reached_ = 1;
        n_scanned_ = 0;
        return;
    }
    // What the remaining scanned sites can reach would be in the tree already, had it not been there.
    for (std::int32_t k = 0; k < n_dead_; ++k) {
        Node& node = nodes_[dead_[k]];
        for (std::int32_t a = first_[dead_[k]], end = first_[dead_[k] + 1]; a < end; ++a) {
            const Arc& arc = arcs_[a];
            if (nodes_[arc.head].place >= n_scanned_ || !(arcs_[arc.sister].capacity > 0)) continue;
            node.parent = a;
            node.place = n_reached_;
            reached_[n_reached_++] = dead_[k];
            break;
        }
    }
}

// Takes v, and all that hangs on it and finds no other parent among those before it, out of the tree.
void PinnedCuts::cut_off(std::int32_t v) {
    Node* const nodes = nodes_.data();
    std::int32_t kept = nodes[v].place, scanned = n_scanned_, n_dead = 0;
    for (std::int32_t k = kept; k < n_reached_; ++k) {
        const std::int32_t x = reached_[k], parent = nodes[x].parent;
        const bool alive = (parent != none && nodes[arcs_[parent].head].place != unreached) ||
                           (n_reached_ > large_tree && adopt(x, kept));
        reached_[kept] = x;
        nodes[x].place = alive ? kept : unreached;
        kept += alive;
        dead_[n_dead] = x;
        n_dead += !alive;
        scanned -= (k < n_scanned_) & !alive;
    }
    n_reached_ = kept;
    n_scanned_ = scanned;
    n_dead_ = n_dead;
}

}  // namespace perturbmap
