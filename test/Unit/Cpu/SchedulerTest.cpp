#include "CpuTest.h"
#include "runtime/Memory.h"
#include <memory>
#include <new>
#include <set>
#include <sys/resource.h>

namespace megalith::cpu {
namespace {

/// Grid barriers: arrivals only grow, thread 0 of each CTA waits.
struct SchedulerTest : CpuTest {
  u32 *arrivals = zeros<u32>("arrivals", 1);
  void gridBarrier(u32 epoch, Order release = Order::Release, Order acquire = Order::Acquire,
                   Scope scope = Scope::Gpu) const {
    h.edge(epoch);
    h.barrier(1, me().threads - 32);
    if (thread() == 0) {
      add(arrivals, 1u, release, scope);
      while (load(arrivals, acquire, scope) < (epoch + 1) * me().ctas) {
      }
    }
    h.barrier(1, me().threads - 32);
  }
  Kernel reset = [this] { executor.reset(reinterpret_cast<char *>(arrivals), Initial::Zero); };
};

TEST_F(SchedulerTest, RunsEveryThread) {
  u32 *seen = zeros<u32>("seen", 4 * 288);
  expectSilent(
      {4, 288, 1024}, [&] { write(seen + cta() * 288 + thread(), cta() * 1000 + thread() + 1); },
      [&] {
        for (u32 i = 0; i < 4 * 288; ++i)
          ASSERT_EQ(seen[i], i / 288 * 1000 + i % 288 + 1);
      },
      3);
}

TEST_F(SchedulerTest, GridBarrierOrdersMemory) {
  u32 *rows = zeros<u32>("rows", 3 * 64);
  before = reset;
  expectSilent({3, 96, 0}, [&] {
    if (thread() >= 64)
      return;
    for (u32 round = 0; round < 3; ++round) {
      write(rows + cta() * 64 + thread(), round + 1);
      gridBarrier(2 * round);
      EXPECT_EQ(read(rows + (cta() + 1) % 3 * 64 + 63 - thread()), round + 1);
      gridBarrier(2 * round + 1);
    }
  });
}

TEST_F(SchedulerTest, LargestGrid) {
  before = reset;
  for (bool check : {false, true}) {
    options.check = check;
    before();
    const LaunchResult r = run({132, 288, 4096}, [&] {
      if (thread() < 256)
        for (u32 round = 0; round < 2; ++round)
          gridBarrier(round);
    });
    EXPECT_EQ(text(r), "silent");
    EXPECT_EQ(*arrivals, 2 * 132u);
  }
}

TEST_F(SchedulerTest, ManyLaunches) {
  u32 *count = zeros<u32>("count", 1);
  for (u32 i = 0; i < 2000; ++i) {
    options.check = i % 2;
    const LaunchResult r = run({4, 288, 2048}, [&] {
      if (thread() == 0) {
        EXPECT_EQ(load(shared<u32>(0)), 0xA5A5A5A5u);
        store(shared<u32>(0), 1u);
      }
      add(count, 1u);
      syncThreads();
    });
    if (i % 2) {
      ASSERT_EQ(r.finding->kind, FindingKind::UnwrittenRead) << text(r);
    } else {
      ASSERT_EQ(text(r), "silent");
    }
  }
  EXPECT_GE(*count, 1000 * 4 * 288u);
}

TEST_F(SchedulerTest, SameSeedSameRun) {
  u32 *order = zeros<u32>("order", 65), *next = order + 64;
  before = [&] { executor.reset(reinterpret_cast<char *>(order), Initial::Zero); };
  const Kernel kernel = [&] {
    for (int i = 0; i < 3; ++i)
      h.fence(Scope::Gpu);
    store(order + add(next, 1u), cta() * 32 + thread());
  };
  for (Schedule::Kind kind : {Schedule::Random, Schedule::Pct}) {
    std::set<std::vector<u32>> different;
    for (u32 seed = 0; seed < 20; ++seed) {
      std::vector<u32> seen[2];
      LaunchResult r[2];
      for (int i = 0; i < 2; ++i) {
        before();
        r[i] = run({2, 32, 0}, kernel, {kind, seed, 3, UINT64_MAX});
        seen[i].assign(order, order + 64);
      }
      EXPECT_EQ(seen[0], seen[1]);
      EXPECT_EQ(r[0].steps, r[1].steps);
      EXPECT_EQ(r[0].decisions, r[1].decisions);
      EXPECT_GT(r[0].decisions, 0u);
      different.insert(seen[0]);
    }
    EXPECT_GT(different.size(), kind == Schedule::Random ? 15u : 1u);
  }
}

TEST_F(SchedulerTest, SameSeedSameFindingInAnotherExecutor) {
  // The other executor's memory is elsewhere.
  for (u32 seed = 0; seed < 20; ++seed) {
    std::string found[2];
    u64 steps[2];
    for (int i = 0; i < 2; ++i) {
      Executor other;
      char *data = other.allocate("data", 400, Initial::Zero);
      const Host &o = *other.host();
      LaunchOptions with = options;
      with.schedule = {Schedule::Random, seed, 3, UINT64_MAX};
      const LaunchResult r = other.launch({2, 64, 0}, with, [&] {
        const Thread &t = **o.current;
        for (u32 j = 0; j < 10; ++j) {
          o.atomic(AtomicOp::Add, data + 4 * (t.thread % 8), 4, 1, 0, Order::Relaxed, Scope::Gpu);
          if (t.thread == 7 + j)
            o.access(data + 100 + 4 * (t.thread % 4), 4, 1, nullptr);
        }
      });
      found[i] = text(r);
      steps[i] = r.steps;
    }
    EXPECT_EQ(found[0], found[1]);
    EXPECT_EQ(steps[0], steps[1]);
    EXPECT_NE(found[0], "silent");
  }
}

TEST_F(SchedulerTest, AfterThePrefixNothingIsDecided) {
  u32 *order = zeros<u32>("order", 65), *next = order + 64;
  before = [&] { executor.reset(reinterpret_cast<char *>(order), Initial::Zero); };
  const Kernel kernel = [&] {
    h.fence(Scope::Gpu);
    store(order + add(next, 1u), cta() * 32 + thread());
  };
  before();
  run({2, 32, 0}, kernel);
  const std::vector<u32> straight(order, order + 64);
  for (Schedule::Kind kind : {Schedule::Random, Schedule::Pct}) {
    before();
    LaunchResult r = run({2, 32, 0}, kernel, {kind, 5, 3, 0});
    EXPECT_EQ(std::vector<u32>(order, order + 64), straight);
    EXPECT_EQ(r.decisions, 0u);
    before();
    r = run({2, 32, 0}, kernel, {kind, 5, 3, 1});
    EXPECT_EQ(r.decisions, 1u);
    EXPECT_EQ(text(r), "silent");
  }
  before();
  LaunchResult r = run({2, 32, 0}, kernel, {Schedule::Random, 5, 3, 10});
  EXPECT_EQ(r.decisions, 10u);
  EXPECT_NE(std::vector<u32>(order, order + 64), straight);
}

TEST_F(SchedulerTest, DeadlockOfAtomicsIsAGraph) {
  u32 *flag = zeros<u32>("flag", 2);
  before = [&] { executor.reset(reinterpret_cast<char *>(flag), Initial::Zero); };
  const Kernel kernel = [&] {
    h.edge(7);
    if (cta() == 1 && thread() == 0)
      store(flag + 1, 3u);
    if (thread() == 0)
      while (load(flag + 1) != 4) {
      }
    h.barrier(1, 64);
  };
  const Finding f = expectAlways(FindingKind::Deadlock, {2, 64, 0}, kernel, 5);
  ASSERT_EQ(f.parties.size(), 4u);
  EXPECT_EQ(f.parties[0].role, "polls 4 bytes at `flag` + 4, which hold 3, last written by CTA 1 thread 0");
  EXPECT_EQ(f.parties[1].role, "waits at barrier 1: 63 of 64 threads have come; elsewhere: 0");
  EXPECT_EQ(f.parties[1].alike, 63u);
  EXPECT_EQ(f.parties[1].place.edge, 7);
  EXPECT_EQ(f.parties[1].place.edgeCount, 64u);
  EXPECT_NE(f.parties[0].place.pc, nullptr);
  options.check = false;
  before();
  EXPECT_EQ(run({2, 64, 0}, kernel).finding->kind, FindingKind::Deadlock);
}

TEST_F(SchedulerTest, StopFlagIsSeenByThoseWhoLookRarely) {
  u32 *flag = zeros<u32>("flag", 2);
  before = [&] { executor.reset(reinterpret_cast<char *>(flag), Initial::Zero); };
  const Kernel kernel = [&] {
    if (thread() == 40) { // works for a long time
      for (u32 i = 0; i < 5000; ++i)
        h.sleep(32);
      store(flag + 1, 1u);
      return;
    }
    for (u32 spin = 1; load(flag) == 0; ++spin)
      if (spin % 1024 == 0 && load(flag + 1))
        return;
  };
  for (bool check : {true, false}) {
    options.check = check;
    expectSilent({2, 64, 0}, kernel, [] {}, 2);
  }
}

TEST_F(SchedulerTest, StalledCtaLetsTheWatchdogFire) {
  u32 *stop = zeros<u32>("stop", 1);
  u32 timeouts = 0;
  before = [&] {
    reset();
    executor.reset(reinterpret_cast<char *>(stop), Initial::Zero);
  };
  const Kernel kernel = [&] {
    for (u32 round = 0; round < 4; ++round) {
      syncThreads();
      if (thread() == 0) {
        add(arrivals, 1u, Order::Release);
        u64 since = 0;
        for (u32 spin = 1; load(arrivals, Order::Acquire) < (round + 1) * me().ctas; ++spin)
          if (spin % 1024 == 0) {
            if (load(stop))
              return;
            const u64 now = h.nanoseconds();
            if (since == 0)
              since = now;
            else if (now - since > 10'000'000'000ull) {
              store(stop, 1u);
              ++timeouts;
            }
          }
      }
      syncThreads();
    }
  };
  options.stalledCta = 1;
  options.stallAt = 100;
  for (Schedule::Kind kind : {Schedule::RoundRobin, Schedule::Random, Schedule::Pct}) {
    before();
    timeouts = 0;
    const LaunchResult r = run({4, 32, 0}, kernel, {kind, 1, 3, UINT64_MAX});
    EXPECT_GE(timeouts, 1u);
    // The stalled CTA never ends, and others wait for their thread 0, which left.
    ASSERT_TRUE(r.finding);
    EXPECT_EQ(r.finding->kind, FindingKind::Deadlock);
    EXPECT_NE(text(r).find("is stalled by the test hook"), std::string::npos) << text(r);
  }
  options.stalledCta.reset();
  before();
  EXPECT_EQ(text(run({4, 32, 0}, kernel)), "silent");
}

TEST_F(SchedulerTest, Livelock) {
  u32 *words = zeros<u32>("words", 2);
  options.maxIdleSteps = 300'000;
  options.progress = [] { return 0; };
  expectAlways(
      FindingKind::Livelock, {1, 32, 0},
      [&] {
        for (;;)
          add(words + thread() % 2, 1u);
      },
      2);
  u64 calls = 0;
  options.progress = [&] { return ++calls; };
  const LaunchResult r = run({1, 32, 0}, [&] {
    for (int i = 0; i < 30'000; ++i)
      add(words + thread() % 2, 1u);
  });
  EXPECT_EQ(text(r), "silent");
  EXPECT_GE(calls, 10u);
}

TEST_F(SchedulerTest, WaitersForManyWordsLeaveTheTurnToOthers) {
  constexpr int kWords = 17; // as where attention's ranges are merged
  u32 *words = zeros<u32>("words", kWords);
  options.maxIdleSteps = 1'000'000;
  options.progress = [] { return 0; };
  const LaunchResult r = run({2, 64, 0}, [&] {
    if (cta() == 0) {
      for (int i = 0; i < 100; ++i)
        syncThreads();
      if (thread() < kWords)
        store(words + thread(), 1u);
      return;
    }
    for (bool absent = true; absent;) {
      absent = false;
      for (int i = 0; i < kWords; ++i)
        absent |= load(words + i) == 0;
    }
  });
  EXPECT_EQ(text(r), "silent");
}

TEST_F(SchedulerTest, SpinLocksDoNotStarve) {
  u32 *lock = zeros<u32>("lock", 2);
  before = [&] { executor.reset(reinterpret_cast<char *>(lock), Initial::Zero); };
  expectSilent(
      {2, 64, 0},
      [&] {
        while (h.atomic(AtomicOp::CompareExchange, lock, 4, 1, 0, Order::Acquire, Scope::Gpu) != 0) {
        }
        write(lock + 1, read(lock + 1) + 1);
        store(lock, 0u, Order::Release);
      },
      [&] { ASSERT_EQ(lock[1], 128u); }, 50);
}

TEST_F(SchedulerTest, SleepersWakeInOrder) {
  u32 *order = zeros<u32>("order", 33);
  before = [&] { executor.reset(reinterpret_cast<char *>(order), Initial::Zero); };
  expectSilent(
      {1, 32, 0},
      [&] {
        const u64 begin = h.nanoseconds();
        h.sleep(1'000'000 * (32 - thread()));
        EXPECT_GE(h.nanoseconds() - begin, 1'000'000u * (32 - thread()));
        store(order + add(order + 32, 1u), thread());
      },
      [&] {
        for (u32 i = 0; i < 32; ++i)
          ASSERT_EQ(order[i], 31 - i);
      },
      5);
}

[[gnu::noinline]] int deep(volatile char *above, int depth) {
  volatile char frame[1024];
  frame[0] = above[0] + 1;
  return depth == 0 ? frame[0] : deep(frame, depth - 1) + frame[0];
}

TEST_F(SchedulerTest, StackOverflow) {
  volatile char top[1] = {0};
  int sum = 0;
  const Kernel overflows = [&] {
    if (cta() == 0 && thread() == 5)
      sum += deep(top, 200);
    syncThreads();
  };
  for (bool check : {false, true}) {
    options.check = check;
    LaunchResult r = run({1, 32, 0}, overflows);
    ASSERT_TRUE(r.finding);
    EXPECT_EQ(r.finding->kind, FindingKind::StackOverflow);
    EXPECT_EQ(r.finding->parties[0].place.thread, 5u);
    r = run({1, 32, 0}, [&] {
      sum += deep(top, 40);
      syncThreads();
    });
    EXPECT_EQ(text(r), "silent");
  }
}

/// No exception passes the code of a kernel, which has no place for one.
TEST_F(SchedulerTest, StopsWhereMemoryIsShort) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer itself reports it";
#endif
  u64 atStep = 0; // 0: before the first thread runs
  u64 calls = 0;
  options.progress = [&] { return calls++ < atStep ? calls : std::make_unique<uint64_t[]>(size_t(1) << 59)[0]; };
  for (atStep = 0; atStep < 3; ++atStep) {
    calls = 0;
    EXPECT_THROW(run({1, 32, 0},
                     [&]() noexcept {
                       for (u32 i = 0; i < 10000; ++i)
                         syncWarp();
                     }),
                 std::bad_alloc);
    EXPECT_EQ(calls, atStep + 1);
  }
  options.progress = nullptr;
  EXPECT_EQ(text(run({1, 32, 0}, [&] { syncWarp(); })), "silent");
}

TEST_F(SchedulerTest, SaysWhatHasNoRoom) {
  auto what = [&](auto step) -> std::string {
    try {
      step();
    } catch (const runtime::NoRoom &error) {
      return error.what();
    }
    return "it has";
  };
  EXPECT_EQ(what([&] { executor.allocate("kCache", size_t(64) << 30, Initial::Zero); }),
            "the CPU executor has no room for 64.0 GiB of `kCache`: all buffers may have 32.0 GiB; make the KV pool "
            "(`pages`, `page_tokens`), the slots or the model smaller");
  EXPECT_EQ(what([&] { executor.allocate("kCache", SIZE_MAX / 4, Initial::Zero); }).substr(0, 52),
            "the CPU executor has no room for 4.0 EiB of `kCache`");
  EXPECT_EQ(what([&] { run({4096, 1024, 0}, [] {}); }),
            "the CPU executor cannot run 4096 CTAs of 1024 threads and 0 bytes of shared memory");
  EXPECT_EQ(what([&] { run({1, 32, 0}, [] {}); }), "it has");
#ifndef __SANITIZE_ADDRESS__ // which itself needs address space
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  rlimit small = before;
  small.rlim_cur = 1ull << 30;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &small), 0);
  const std::string said = what([] { Executor another; });
  setrlimit(RLIMIT_AS, &before);
  EXPECT_EQ(said.substr(0, 58), "the CPU executor cannot reserve 32.5 GiB of address space:");
#endif
}

} // namespace
} // namespace megalith::cpu
