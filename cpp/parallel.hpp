// Runs independent tasks on a few threads.
//
// Tasks are handed out in blocks through one atomic counter. A task writes only to its own part of the
// output, so results cannot depend on the number of threads. Threads live as long as the call: nothing
// is left behind that a fork or an interpreter shutdown could trip over.
//
// Work spaces live as long as the call, too, and may refer to its arrays.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace perturbmap {

// With less work than this, in nanoseconds, a thread is not worth starting. To start and join one took 19
// microseconds in the median and 29 at the ninth decile where it was measured, and estimates of work are rough.
constexpr double work_per_thread = 1e5;

// Tasks differ in length: many blocks let the threads end at nearly the same time.
constexpr std::size_t blocks_per_thread = 64;

// Calls task(workspace, index) for every index in [0, n_tasks); each thread has one workspace, which it makes by
// make_workspace(). `nanoseconds` is a rough estimate of the work of all tasks together.
template <class MakeWorkspace, class Task>
void parallel_for(std::size_t n_tasks, int n_threads, double nanoseconds, MakeWorkspace make_workspace, Task task) {
    const double useful = std::min({static_cast<double>(n_threads), static_cast<double>(n_tasks),
                                    nanoseconds / work_per_thread});
    const int n = std::max(1, static_cast<int>(useful));
    const std::size_t block = std::max<std::size_t>(1, n_tasks / (static_cast<std::size_t>(n) * blocks_per_thread));

    std::atomic<std::size_t> next{0};
    std::exception_ptr failure;
    std::mutex failure_mutex;
    auto work = [&] {
        try {
            auto workspace = make_workspace();
            for (std::size_t begin; (begin = next.fetch_add(block)) < n_tasks;) {
                const std::size_t end = std::min(n_tasks, begin + block);
                for (std::size_t index = begin; index < end; ++index) task(workspace, index);
            }
        } catch (...) {
            next.store(n_tasks);
            const std::lock_guard<std::mutex> lock(failure_mutex);
            failure = std::current_exception();
        }
    };

    std::vector<std::thread> threads;
    threads.reserve(static_cast<std::size_t>(n - 1));
    try {
        for (int i = 1; i < n; ++i) threads.emplace_back(work);
    } catch (const std::exception&) {
        // The system gives no more threads, or no memory for them: those there are do the work, at least the caller's.
    }
    work();
    for (std::thread& thread : threads) thread.join();
    if (failure) std::rethrow_exception(failure);
}

}  // namespace perturbmap
