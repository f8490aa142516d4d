#include "elimination_order.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <queue>
#include <tuple>
#include <utility>

namespace perturbmap {

namespace {

class Greedy {
   public:
    Greedy(std::size_t n, std::size_t max_width) : max_width_(max_width), neighbours_(n), fill_(n, 0), is_left_(n, 0) {}

    void join(std::int32_t i, std::int32_t j) {
        neighbours_[i].push_back(j);
        neighbours_[j].push_back(i);
    }

    EliminationOrder run(const std::int32_t* given, bool may_cut) {
        EliminationOrder order;
        for (std::size_t i = 0; i < neighbours_.size(); ++i) {
            is_left_[i] = !(given && given[i] >= 0);
            std::sort(neighbours_[i].begin(), neighbours_[i].end());
            neighbours_[i].erase(std::unique(neighbours_[i].begin(), neighbours_[i].end()), neighbours_[i].end());
        }
        std::size_t n_left = 0;
        for (std::size_t i = 0; i < neighbours_.size(); ++i)
            if (is_left_[i]) {
                ++n_left;
                count_fill(static_cast<std::int32_t>(i));
            }
        while (n_left > 0) {
            const std::int32_t site = next();
            if (site < 0) {
                if (order.cut.empty()) list_by_degree();
                const std::int32_t widest = next_to_cut();
                order.cut.push_back(widest);
                if (!may_cut) return order;
                cut(widest);
            } else {
                order.steps.push_back({site, neighbours_[site]});
                sum_out(site);
            }
            --n_left;
        }
        return order;
    }

   private:
    using Entry = std::tuple<std::size_t, std::size_t, std::int32_t>;  // fill, neighbours, site

    // The best site that may be summed out, or -1. Entries of sites that have changed since are stale.
    std::int32_t next() {
        while (!queue_.empty()) {
            const auto [fill, degree, site] = queue_.top();
            queue_.pop();
            if (is_left_[site] && fill == fill_[site] && degree == neighbours_[site].size()) return site;
        }
        return -1;
    }

    std::int32_t next_to_cut() {
        while (true) {
            const auto [degree, minus_site] = by_degree_.top();
            const std::int32_t site = -minus_site;
            by_degree_.pop();
            if (!is_left_[site]) continue;
            if (degree == neighbours_[site].size()) return site;
            by_degree_.push({neighbours_[site].size(), minus_site});
        }
    }

    void list_by_degree() {
        for (std::size_t i = 0; i < neighbours_.size(); ++i)
            if (is_left_[i]) by_degree_.push({neighbours_[i].size(), -static_cast<std::int32_t>(i)});
    }

    bool are_joined(std::int32_t i, std::int32_t j) const {
        return std::binary_search(neighbours_[i].begin(), neighbours_[i].end(), j);
    }

    void enter(std::int32_t site) {
        if (neighbours_[site].size() <= max_width_) queue_.push({fill_[site], neighbours_[site].size(), site});
    }

    void count_fill(std::int32_t site) {
        const auto& around = neighbours_[site];
        if (around.size() > max_width_) return;
        std::size_t fill = 0;
        for (std::size_t a = 0; a < around.size(); ++a)
            for (std::size_t b = a + 1; b < around.size(); ++b) fill += !are_joined(around[a], around[b]);
        fill_[site] = fill;
        enter(site);
    }

    void remove(std::int32_t site) {
        is_left_[site] = 0;
        for (const std::int32_t j : neighbours_[site]) {
            auto& others = neighbours_[j];
            others.erase(std::lower_bound(others.begin(), others.end(), site));
        }
    }

    void sum_out(std::int32_t site) {
        remove(site);
        const std::vector<std::int32_t> around = std::move(neighbours_[site]);
        changed_ = around;
        for (std::size_t a = 0; a < around.size(); ++a)
            for (std::size_t b = a + 1; b < around.size(); ++b) {
                auto &of_a = neighbours_[around[a]], &of_b = neighbours_[around[b]];
                const auto place = std::lower_bound(of_a.begin(), of_a.end(), around[b]);
                if (place != of_a.end() && *place == around[b]) continue;
                // Whoever knows both sees one pair less to be joined.
                std::set_intersection(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(), std::back_inserter(changed_));
                of_a.insert(place, around[b]);
                of_b.insert(std::lower_bound(of_b.begin(), of_b.end(), around[a]), around[a]);
            }
        count_changed();
    }

    void cut(std::int32_t site) {
        remove(site);
        changed_ = std::move(neighbours_[site]);
        count_changed();
    }

    void count_changed() {
        std::sort(changed_.begin(), changed_.end());
        changed_.erase(std::unique(changed_.begin(), changed_.end()), changed_.end());
        for (const std::int32_t j : changed_) count_fill(j);
    }

    std::size_t max_width_;
    std::vector<std::vector<std::int32_t>> neighbours_;  // of the sites that are left, sorted
    std::vector<std::size_t> fill_;
    std::vector<std::uint8_t> is_left_;
    std::vector<std::int32_t> changed_;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> queue_;
    std::priority_queue<std::pair<std::size_t, std::int32_t>> by_degree_;
};

}  // namespace

EliminationOrder elimination_order(std::size_t n_sites, std::int32_t first_site, const std::int32_t* edges,
                                   std::size_t n_edges, const std::int32_t* given, std::size_t max_width, bool may_cut) {
    Greedy greedy(n_sites, max_width);
    for (std::size_t e = 0; e < n_edges; ++e) {
        const std::int32_t i = edges[2 * e] - first_site, j = edges[2 * e + 1] - first_site;
        if (given && (given[i] >= 0 || given[j] >= 0)) continue;
        greedy.join(i, j);
    }
    return greedy.run(given, may_cut);
}

}  // namespace perturbmap
