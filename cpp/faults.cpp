// For tests alone (-DPERTURBMAP_FAULTS=ON): operator new as a counting allocator that can be told to fail.
//
// Every block that the kernels take through operator new is listed while it lives, so that a leak shows as a block too
// many. fail_allocation(n) makes the n-th allocation of the calls from now on, and only it, throw std::bad_alloc;
// what the bindings' own library takes to convert arguments and results does not count.
#include "faults.hpp"

#include <cstdlib>
#include <mutex>
#include <new>
#include <unordered_set>

namespace {

// Not through operator new, which would count itself.
template <class T>
struct Uncounted {
    using value_type = T;
    Uncounted() = default;
    template <class U>
    Uncounted(const Uncounted<U>&) {}
    T* allocate(std::size_t n) { return static_cast<T*>(std::malloc(n * sizeof(T))); }
    void deallocate(T* p, std::size_t) { std::free(p); }
    bool operator==(const Uncounted&) const { return true; }
    bool operator!=(const Uncounted&) const { return false; }
};

struct Book {
    std::mutex mutex;
    std::unordered_set<void*, std::hash<void*>, std::equal_to<void*>, Uncounted<void*>> live;
    long until_failure = -1;
    int n_calls = 0;  // of the kernels, that run now
};

Book& book() {
    static Book* const only = new (std::malloc(sizeof(Book))) Book;  // for ever: blocks are freed after all destructors
    return *only;
}

void* take(std::size_t size) {
    const std::lock_guard<std::mutex> lock(book().mutex);
    if (book().n_calls > 0 && book().until_failure > 0 && --book().until_failure == 0) throw std::bad_alloc();
    void* const p = std::malloc(size ? size : 1);
    if (!p) throw std::bad_alloc();
    book().live.insert(p);
    return p;
}

void give_back(void* p) {
    if (!p) return;
    const std::lock_guard<std::mutex> lock(book().mutex);
    book().live.erase(p);
    std::free(p);
}

}  // namespace

void* operator new(std::size_t size) { return take(size); }
void* operator new[](std::size_t size) { return take(size); }
void operator delete(void* p) noexcept { give_back(p); }
void operator delete[](void* p) noexcept { give_back(p); }
void operator delete(void* p, std::size_t) noexcept { give_back(p); }
void operator delete[](void* p, std::size_t) noexcept { give_back(p); }

namespace perturbmap {

KernelCall::KernelCall() {
    const std::lock_guard<std::mutex> lock(book().mutex);
    ++book().n_calls;
}

KernelCall::~KernelCall() {
    const std::lock_guard<std::mutex> lock(book().mutex);
    --book().n_calls;
}

void add_faults(nanobind::module_& module) {
    module.def("fail_allocation", [](long n) {
        const std::lock_guard<std::mutex> lock(book().mutex);
        book().until_failure = n;
    });
    // Whether the failure that was asked for has happened; none is waited for afterwards.
    module.def("has_failed", [] {
        const std::lock_guard<std::mutex> lock(book().mutex);
        const bool failed = book().until_failure == 0;
        book().until_failure = -1;
        return failed;
    });
    module.def("live_allocations", [] {
        const std::lock_guard<std::mutex> lock(book().mutex);
        return book().live.size();
    });
}

}  // namespace perturbmap
