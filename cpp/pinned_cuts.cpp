#include "pinned_cuts.hpp"

#include <algorithm>
#include <cmath>

namespace perturbmap {

namespace {
// Sums of the same capacities in another order differ by rounding; beyond this they differ in fact.
constexpr double rounding = 1e-13;
}  // namespace

void PinnedCuts::run(MaxFlow& flow, const std::uint8_t* wanted, const std::int32_t* given) {
    const std::size_t n = static_cast<std::size_t>(flow.n_sites());
    arcs_ = flow.arcs();
    first_ = flow.first_arcs();
    gap_.assign(n, std::numeric_limits<double>::quiet_NaN());
    set_of_.assign(n, -1);
    members_.clear();
    set_begin_.assign(1, 0);
    nodes_.resize(n);
    current_arc_.resize(n);
    alone_.resize(n);
    for (int side = 0; side < 2; ++side) {
        for (std::size_t i = 0; i < n; ++i) {
            const bool inside = flow.label(static_cast<int>(i)) == side && !(given && given[i] >= 0);
            const double excess = flow.excess(static_cast<int>(i));
            Node& node = nodes_[i];
            node.room = inside ? std::max(0.0, side == 1 ? excess : -excess) : 0.0;
            node.excess = 0;
            node.sink_gap = -infinity;
            node.level = inside ? unseen : closed;
            node.frame = 0;
        }
        // Flipping a set costs what leaves it: on side 0 its residual arcs, on side 1, where the cut
        // runs the other way, their sisters.
        if (side == 1) flow.reverse();
        settle_side(wanted);
        if (side == 1) flow.reverse();
    }
    if (given)
        for (std::size_t i = 0; i < n; ++i)
            if (given[i] >= 0) gap_[i] = infinity;
}

void PinnedCuts::settle_side(const std::uint8_t* wanted) {
    frames_.assign(1, {infinity, -1, 0});
    frame_ = 0;
    order_.clear();
    const std::int32_t n = static_cast<std::int32_t>(nodes_.size());
    for (std::int32_t x = 0; x < n; ++x) {
        if (nodes_[x].level == closed) continue;
        // A first round settles the pins whose neighbours' own residuals take all they push.
        double alone = nodes_[x].room;
        bool is_alone = true;
        for (int a = first_[x], end = first_[x + 1]; a < end; ++a) {
            const Arc& arc = arcs_[a];
            const Node& head = nodes_[arc.head];
            const double out = head.level == closed ? 0.0 : arc.capacity;
            alone += out;
            is_alone &= out <= head.room;
        }
        alone_[x] = alone;
        if (wanted && !wanted[x]) continue;
        if (is_alone)
            settle_alone(x);
        else
            order_.push_back(x);
    }
    std::sort(order_.begin(), order_.end(), [&](std::int32_t x, std::int32_t y) {
        return alone_[x] != alone_[y] ? alone_[x] > alone_[y] : x < y;
    });
    for (const std::int32_t d : order_) {
        if (nodes_[d].sink_gap == -infinity) settle(d);
        while (frame_ > 0) {
            Frame& frame = frames_.back();
            if (frame.position == set_begin_[frame.set + 1]) {
                close_frame();
                continue;
            }
            const std::int32_t x = members_[frame.position++];
            if (nodes_[x].sink_gap == -infinity && !(wanted && !wanted[x])) settle(x);
        }
    }
    for (std::int32_t x = 0; x < n; ++x)
        if (nodes_[x].sink_gap != -infinity) gap_[x] = nodes_[x].sink_gap;
}

void PinnedCuts::settle_as(std::int32_t d, std::int32_t set, double gap) {
    set_of_[d] = set;
    nodes_[d].sink_gap = gap;
}

void PinnedCuts::settle_alone(std::int32_t d) {
    settle_as(d, static_cast<std::int32_t>(n_sets()), alone_[d]);
    members_.push_back(d);
    set_begin_.push_back(members_.size());
}

void PinnedCuts::settle(std::int32_t d) {
    const Frame frame = frames_.back();
    const double alone = alone_[d];
    const bool may_be_alone = alone <= frame.gap;
    // By (3), settled pins with a gap above min(alone, frame.gap) are terminals. So are those with a gap
    // of just `alone`: if S_d held one, F(S_d) = F({d}), and {d} is the smaller set.
    sink_from_ = may_be_alone ? alone : std::nextafter(frame.gap, infinity);
    const double enough = may_be_alone ? alone * (1 - rounding) : frame.gap * (1 + rounding);

    const bool is_cut = !search(d, enough);
    if (is_cut || borrowed_ || !may_be_alone)
        restore();
    else
        keep_flow(d);

    if (is_cut) {
        settle_as(d, static_cast<std::int32_t>(n_sets()), std::min({absorbed_, alone, frame.gap}));
        members_.insert(members_.end(), flipped_.begin(), flipped_.end());
        set_begin_.push_back(members_.size());
        if (flipped_.size() > 1) open_frame(d);
    } else if (may_be_alone) {
        settle_alone(d);
    } else {
        settle_as(d, frame.set, infinity);  // a terminal for the rest of the frame
    }
}

void PinnedCuts::open_frame(std::int32_t d) {
    const std::int32_t set = set_of_[d];
    frames_.push_back({nodes_[d].sink_gap, set, set_begin_[set]});
    ++frame_;
    for (const std::int32_t x : flipped_) nodes_[x].frame = frame_;
    nodes_[d].sink_gap = infinity;
}

void PinnedCuts::close_frame() {
    const Frame frame = frames_.back();
    frames_.pop_back();
    --frame_;
    for (std::size_t k = set_begin_[frame.set]; k < set_begin_[frame.set + 1]; ++k) {
        Node& node = nodes_[members_[k]];
        node.frame = frame_;
        if (node.sink_gap == infinity) node.sink_gap = frame.gap;
    }
}

// Pushes all that the arcs of d can carry, and on, by the shortest ways, what the neighbours cannot take.
// True once `enough` reached the terminal; false where the rest cannot: `reached_` is S_d then.
bool PinnedCuts::search(std::int32_t d, double enough) {
    changes_.clear();
    active_.clear();
    reached_.clear();
    borrowed_ = false;
    absorbed_ = nodes_[d].room;
    flipped_.clear();
    flip(d);
    if (!active_.empty() && absorbed_ < enough) {
        push_active([this](std::int32_t x, double excess) { return push_nearby(x, excess, 3); });
        flip_overwhelmed();
    }
    bool is_cut = active_.empty() && flipped_.size() > 1;
    while (!(absorbed_ >= enough || is_cut)) {
        if (find_levels()) {
            push_active([this](std::int32_t x, double excess) { return push_from(x, excess); });
            is_cut = active_.empty() && flipped_.size() > 1;
        } else {
            is_cut = true;
            flipped_.insert(flipped_.end(), reached_.begin(), reached_.end());
        }
        for (const std::int32_t x : reached_) nodes_[x].level = unseen;
        reached_.clear();
    }
    for (const std::int32_t x : active_) nodes_[x].excess = 0;
    for (const std::int32_t x : flipped_) {
        nodes_[x].level = unseen;
        nodes_[x].excess = 0;
    }
    return absorbed_ >= enough;
}

// Takes x into S_d: all its arcs are pushed full, and nothing flows back into it, so that they need not
// be changed.
void PinnedCuts::flip(std::int32_t x) {
    nodes_[x].level = closed;
    flipped_.push_back(x);
    for (int a = first_[x], end = first_[x + 1]; a < end; ++a) {
        const Arc& arc = arcs_[a];
        Node& head = nodes_[arc.head];
        if (!(arc.capacity > 0) || head.level == closed) continue;
        const double rest = arc.capacity - absorb(head, arc.capacity);
        if (!(rest > 0)) continue;
        if (!(head.excess > 0)) active_.push_back(arc.head);
        head.excess += rest;
    }
}

// A node that holds more than it could push on in any case flips too.
void PinnedCuts::flip_overwhelmed() {
    for (bool again = true; again;) {
        again = false;
        for (std::size_t k = 0; k < active_.size();) {
            const std::int32_t x = active_[k];
            double out = 0;
            for (int a = first_[x], end = first_[x + 1]; a < end; ++a) {
                const Arc& arc = arcs_[a];
                const Node& head = nodes_[arc.head];
                out += head.level == closed ? 0.0 : arc.capacity;
            }
            if (nodes_[x].excess > out) {
                active_[k] = active_.back();
                active_.pop_back();
                flip(x);
                again = true;
            } else {
                ++k;
            }
        }
    }
}

double PinnedCuts::absorb(Node& node, double flow) {
    if (flow > node.room && is_sink(node)) {
        borrowed_ = true;
        absorbed_ += flow;
        return flow;
    }
    const double kept = std::min(flow, node.room);
    if (kept > 0) {
        changes_.push_back({&node.room, node.room});
        node.room -= kept;
        absorbed_ += kept;
    }
    return kept;
}

// Lets every node with excess push; those that are rid of it are active no more.
template <class Push>
void PinnedCuts::push_active(Push push) {
    std::size_t kept = 0;
    for (const std::int32_t x : active_) {
        Node& node = nodes_[x];
        node.excess -= push(x, node.excess);
        if (node.excess > 0) active_[kept++] = x;
    }
    active_.resize(kept);
}

void PinnedCuts::push_through(std::int32_t a, double flow) {
    Arc& arc = arcs_[a];
    Arc& sister = arcs_[arc.sister];
    changes_.push_back({&arc.capacity, arc.capacity});
    changes_.push_back({&sister.capacity, sister.capacity});
    arc.capacity -= flow;
    sister.capacity += flow;
}

// Depth-first over at most `depth` arcs: cheaper than levels where residuals are near, as most are.
double PinnedCuts::push_nearby(std::int32_t x, double limit, int depth) {
    nodes_[x].level = 0;  // on the path
    double pushed = 0;
    for (int a = first_[x], end = first_[x + 1]; a < end && limit > 0; ++a) {
        const Arc& arc = arcs_[a];
        if (!(arc.capacity > 0)) continue;
        Node& head = nodes_[arc.head];
        if (head.level != unseen) continue;
        const double wanted = std::min(limit, arc.capacity);
        double flow = absorb(head, wanted);
        if (depth > 1 && flow < wanted) flow += push_nearby(arc.head, wanted - flow, depth - 1);
        if (!(flow > 0)) continue;
        push_through(a, flow);
        pushed += flow;
        limit -= flow;
    }
    nodes_[x].level = unseen;
    return pushed;
}

// Breadth-first search from the nodes with excess up to the first level with a terminal or a residual.
bool PinnedCuts::find_levels() {
    reached_.clear();
    for (const std::int32_t x : active_) {
        nodes_[x].level = 0;
        reached_.push_back(x);
    }
    constexpr std::int32_t nowhere = std::numeric_limits<std::int32_t>::max();
    last_level_ = nowhere;
    for (std::size_t k = 0; k < reached_.size(); ++k) {
        const std::int32_t x = reached_[k], level = nodes_[x].level + 1;
        if (level > last_level_) break;
        current_arc_[x] = first_[x];
        for (int a = first_[x], end = first_[x + 1]; a < end; ++a) {
            const Arc& arc = arcs_[a];
            if (!(arc.capacity > 0)) continue;
            Node& head = nodes_[arc.head];
            if (head.level != unseen) continue;
            head.level = level;
            reached_.push_back(arc.head);
            if (head.room > 0 || is_sink(head)) last_level_ = level;
        }
    }
    return last_level_ != nowhere;
}

// Pushes up to `limit` from x to the last level; returns how much got there.
double PinnedCuts::push_from(std::int32_t x, double limit) {
    Node& node = nodes_[x];
    if (node.level == last_level_) return absorb(node, limit);
    double pushed = 0;
    std::int32_t& a = current_arc_[x];
    for (const std::int32_t end = first_[x + 1]; a < end; ++a) {
        const Arc& arc = arcs_[a];
        if (!(arc.capacity > 0) || nodes_[arc.head].level != node.level + 1) continue;
        const double flow = push_from(arc.head, std::min(limit, arc.capacity));
        if (!(flow > 0)) continue;
        push_through(a, flow);
        pushed += flow;
        if (!((limit -= flow) > 0)) break;
    }
    return pushed;
}

// All flow from d was taken by residuals. It may stay: once its amount is added to t[d], F(S) is what it
// was for every S, and the next pins find t[d] in their neighbourhood.
void PinnedCuts::keep_flow(std::int32_t d) {
    for (int a = first_[d]; a < first_[d + 1]; ++a) {
        Arc& arc = arcs_[a];
        if (nodes_[arc.head].level == closed) continue;
        arcs_[arc.sister].capacity += arc.capacity;
        arc.capacity = 0;
    }
    nodes_[d].room = alone_[d];
}

void PinnedCuts::restore() {
    for (std::size_t k = changes_.size(); k-- > 0;) *changes_[k].where = changes_[k].before;
}

CutPins PinnedCuts::pins(const MaxFlow& flow) const {
    CutPins out;
    const std::size_t n = nodes_.size();
    out.free.resize(n);
    for (std::size_t i = 0; i < n; ++i) out.free[i] = static_cast<std::uint8_t>(flow.label(static_cast<int>(i)));
    out.set_of = set_of_;
    out.set_begin = set_begin_;
    out.members = members_;
    out.inner_begin.assign(1, 0);
    std::vector<std::int32_t> mark(n, -1);
    for (std::size_t s = 0; s < n_sets(); ++s) {
        const std::size_t begin = set_begin_[s], end = set_begin_[s + 1];
        if (end - begin > 1) {
            for (std::size_t i = begin; i < end; ++i) mark[members_[i]] = static_cast<std::int32_t>(s);
            for (std::size_t i = begin; i < end; ++i) {
                const std::int32_t x = members_[i];
                for (std::int32_t a = first_[x]; a < first_[x + 1]; ++a)
                    if (arcs_[a].head > x && mark[arcs_[a].head] == static_cast<std::int32_t>(s))
                        out.inner_edges.push_back(flow.edge_of_arc(a));
            }
        }
        out.inner_begin.push_back(out.inner_edges.size());
    }
    return out;
}

void CutPins::add_moments(std::int32_t first_site, const std::int32_t* edges, std::size_t n_edges,
                          const double* weights, double* unary, double* pairwise, std::size_t stride) const {
    const std::size_t n = free.size(), n_sets = set_begin.size() - 1;
    double total = 0;
    std::vector<double> set_weight(n_sets, 0.0);
    for (std::size_t d = 0; d < n; ++d) {
        total += weights[2 * d] + weights[2 * d + 1];
        if (set_of[d] >= 0) set_weight[set_of[d]] += weights[2 * d + 1 - free[d]];
    }
    // The weight of the pins that flip a site, and of those that flip both ends of an edge.
    std::vector<double> site_weight(n, 0.0), edge_weight(n_edges, 0.0);
    for (std::size_t s = 0; s < n_sets; ++s) {
        if (set_weight[s] == 0) continue;
        for (std::size_t i = set_begin[s]; i < set_begin[s + 1]; ++i) site_weight[members[i]] += set_weight[s];
        for (std::size_t i = inner_begin[s]; i < inner_begin[s + 1]; ++i) edge_weight[inner_edges[i]] += set_weight[s];
    }
    for (std::size_t x = 0; x < n; ++x) {
        unary[2 * x + free[x]] += total - site_weight[x];
        unary[2 * x + 1 - free[x]] += site_weight[x];
    }
    for (std::size_t e = 0; e < n_edges; ++e) {
        const std::int32_t i = edges[2 * e] - first_site, j = edges[2 * e + 1] - first_site;
        const int a = free[i], b = free[j];
        const double both = edge_weight[e], only_i = site_weight[i] - both, only_j = site_weight[j] - both;
        double* out = pairwise + e * stride;
        out[2 * a + b] += total - only_i - only_j - both;
        out[2 * (1 - a) + b] += only_i;
        out[2 * a + 1 - b] += only_j;
        out[2 * (1 - a) + 1 - b] += both;
    }
}

}  // namespace perturbmap
