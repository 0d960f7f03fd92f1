//===- CpuTest.h - kernels of the executor's tests ------------------------===//
#ifndef MEGALITH_TEST_UNIT_CPU_CPUTEST_H
#define MEGALITH_TEST_UNIT_CPU_CPUTEST_H

#include "runtime/cpu/Executor.h"
#include <cstring>
#include <gtest/gtest.h>

namespace megalith::cpu {

using u32 = unsigned;
using u64 = unsigned long long;

struct CpuTest : testing::Test {
  Executor executor;
  const Host &h = *executor.host();
  LaunchOptions options = checking();

  static LaunchOptions checking() {
    LaunchOptions options;
    options.check = true;
    return options;
  }

  const Thread &me() const { return **h.current; }
  u32 thread() const { return me().thread; }
  u32 cta() const { return me().cta; }
  template <class T> T *shared(size_t offset = 0) const { return reinterpret_cast<T *>(me().shared + offset); }

  // --- plain memory, as the compiler's calls report it
  template <class T> [[gnu::noinline]] T read(const T *p) const {
    h.access(p, sizeof(T), 0, __builtin_return_address(0));
    T v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  template <class T> [[gnu::noinline]] void write(T *p, T v) const {
    h.access(p, sizeof(T), 1, __builtin_return_address(0));
    std::memcpy(p, &v, sizeof v);
  }

  // --- atomics
  template <class T> T load(const T *p, Order order = Order::Relaxed, Scope scope = Scope::Gpu) const {
    return h.atomic(AtomicOp::Load, const_cast<T *>(p), sizeof(T), 0, 0, order, scope);
  }
  template <class T> void store(T *p, T v, Order order = Order::Relaxed, Scope scope = Scope::Gpu) const {
    h.atomic(AtomicOp::Store, p, sizeof(T), v, 0, order, scope);
  }
  template <class T> T add(T *p, T v, Order order = Order::Relaxed, Scope scope = Scope::Gpu) const {
    return h.atomic(AtomicOp::Add, p, sizeof(T), v, 0, order, scope);
  }
  void syncThreads() const { h.barrier(0, me().threads); }
  void syncWarp(u32 mask = ~0u) const { h.warp(WarpOp::Sync, mask, nullptr, 0, nullptr); }

  template <class T> T *zeros(const char *name, size_t count) {
    return reinterpret_cast<T *>(executor.allocate(name, count * sizeof(T), Initial::Zero));
  }

  using Kernel = std::function<void()>;
  LaunchResult run(LaunchShape shape, const Kernel &kernel, Schedule schedule = {}) {
    options.schedule = schedule;
    return executor.launch(shape, options, kernel);
  }

  static std::string text(const LaunchResult &r) {
    if (!r.finding)
      return "silent";
    std::string s = std::string(findingName(r.finding->kind)) + ": " + r.finding->what;
    for (const Finding::Party &p : r.finding->parties)
      s += "\n  " + std::to_string(p.alike) + "x CTA " + std::to_string(p.place.cta) + " thread " +
           std::to_string(p.place.thread) + (p.place.host ? " (host)" : "") + ": " + p.role;
    return s;
  }

  /// Before each launch of the helpers below: gives memory its first content again.
  Kernel before = [] {};

  /// Nothing is found under any schedule; `after` may look at memory.
  void expectSilent(LaunchShape shape, const Kernel &kernel, const Kernel &after = [] {}, u32 seeds = 200) {
    before();
    LaunchResult r = run(shape, kernel);
    ASSERT_EQ(text(r), "silent") << "round robin";
    after();
    for (u32 seed = 0; seed < seeds; ++seed)
      for (Schedule::Kind kind : {Schedule::Random, Schedule::Pct}) {
        before();
        r = run(shape, kernel, {kind, seed, 3, UINT64_MAX});
        ASSERT_EQ(text(r), "silent") << (kind == Schedule::Pct ? "pct " : "random ") << seed;
        after();
        if (HasFatalFailure())
          return;
      }
  }

  /// The kind is found under round robin and under all other schedules, and nothing else.
  Finding expectAlways(FindingKind kind, LaunchShape shape, const Kernel &kernel, u32 seeds = 20) {
    before();
    LaunchResult r = run(shape, kernel);
    EXPECT_EQ(r.finding ? findingName(r.finding->kind) : "silent", std::string(findingName(kind))) << text(r);
    const Finding first = r.finding.value_or(Finding{kind, "", {{}, {}, {}}});
    for (u32 seed = 0; seed < seeds; ++seed)
      for (Schedule::Kind k : {Schedule::Random, Schedule::Pct}) {
        before();
        r = run(shape, kernel, {k, seed, 3, UINT64_MAX});
        EXPECT_EQ(r.finding ? findingName(r.finding->kind) : "silent", std::string(findingName(kind)))
            << text(r) << " seed " << seed;
      }
    return first;
  }

  /// The kind is found by some seed, and no other kind by any.
  std::optional<Finding> expectSometimes(FindingKind kind, LaunchShape shape, const Kernel &kernel, u32 seeds = 200) {
    std::optional<Finding> found;
    for (u32 seed = 0; seed < seeds; ++seed)
      for (Schedule::Kind k : {Schedule::Random, Schedule::Pct}) {
        before();
        LaunchResult r = run(shape, kernel, {k, seed, 3, UINT64_MAX});
        if (!r.finding)
          continue;
        EXPECT_EQ(r.finding->kind, kind) << text(r) << " seed " << seed;
        found = std::move(r.finding);
      }
    EXPECT_TRUE(found) << findingName(kind) << " by no seed";
    return found;
  }
};

} // namespace megalith::cpu
#endif
