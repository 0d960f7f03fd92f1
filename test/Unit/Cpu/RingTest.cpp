#include "CpuTest.h"

namespace megalith::cpu {
namespace {

/// What a ring does wrong.
struct Bug {
  bool swapParity = false, noRelease = false, earlyRelease = false, noProxyFence = false, noWait = false;
  bool noSyncAfterInit = false, asyncCopies = false, consumerForgetsFull = false, fenceOfGlobal = false;
  /// Between the loads of a stage and the next copy to it: fences of the producer, of all consumers, of each warp's
  /// lane 0 after its __syncwarp, or none that counts.
  enum { Producer, Consumers, OneLane, Early, None } fence = Producer;
  int arrivals = 0, bytes = 0;
};

/// A ring of stages in shared memory that warp 2 fills and warps 0 and 1 drain.
struct RingTest : CpuTest {
  static constexpr u32 kStages = 3, kStageBytes = 256, kChunks = 8;
  static constexpr LaunchShape kShape{2, 96, 4096};
  enum { Full = 0, Empty = 64, Data = 1024 };

  u32 image[kChunks * kStageBytes / 4];
  char *weights;
  u32 *sums = zeros<u32>("sums", 128);

  RingTest() {
    for (u32 i = 0; i < std::size(image); ++i)
      image[i] = i * 7 + 1;
    weights = executor.allocate("weights", sizeof image, Initial::Const, image);
    before = [this] { executor.reset(reinterpret_cast<char *>(sums), Initial::Zero); };
  }
  u64 *bar(u32 offset, u32 stage = 0) const { return shared<u64>(offset) + stage; }

  void init(const Bug &bug) const {
    if (thread() == 0) {
      for (u32 s = 0; s < kStages; ++s) {
        h.mbarrierInit(bar(Full, s), bug.asyncCopies ? 32 : 1);
        h.mbarrierInit(bar(Empty, s), 2 + bug.arrivals);
      }
      if (!bug.noProxyFence)
        h.proxyFence(bug.fenceOfGlobal ? Space::Global : Space::Shared);
    }
    if (!bug.noSyncAfterInit)
      syncThreads();
  }
  void produce(const Bug &bug) const {
    u32 stage = 0, parity = bug.swapParity ? 0 : 1;
    for (u32 c = 0; c < kChunks; ++c) {
      const bool skip = bug.noWait && c >= kStages;
      while (!skip) {
        const bool ok = h.mbarrierTest(bar(Empty, stage), parity);
        char all = 1;
        const char *votes = h.warp(WarpOp::Vote, ~0u, &ok, 1, nullptr);
        for (u32 lane = 0; lane < 32; ++lane)
          all &= votes[lane * kLaneBytes];
        if (all)
          break;
      }
      char *to = shared<char>(Data) + stage * kStageBytes;
      if (bug.asyncCopies) {
        for (u32 i = thread() % 32 * 16; i < kStageBytes; i += 512)
          h.copyAsync(to + i, weights + c * kStageBytes + i);
        h.copyAsyncArrive(bar(Full, stage));
      } else if (thread() % 32 == 0) {
        if (bug.fence == Bug::Producer)
          h.proxyFence(Space::Shared);
        h.mbarrierArriveExpect(bar(Full, stage), kStageBytes + bug.bytes);
        h.copyBulk(to, weights + c * kStageBytes, kStageBytes, bar(Full, stage));
      }
      if (++stage == kStages) {
        stage = 0;
        parity ^= 1;
      }
    }
    // Nothing may be on its way when the CTA ends.
    for (u32 c = kChunks - kStages; c < kChunks; ++c)
      while (!h.mbarrierTest(bar(Full, c % kStages), c / kStages & 1)) {
      }
  }
  void consume(const Bug &bug) const {
    u32 sum = 0;
    for (u32 c = 0; c < kChunks; ++c) {
      const u32 stage = c % kStages;
      const auto release = [&] {
        if (bug.fence == Bug::Consumers)
          h.proxyFence(Space::Shared);
        syncWarp();
        if (thread() % 32 == 0) {
          if (bug.fence == Bug::OneLane)
            h.proxyFence(Space::Shared);
          h.mbarrierArrive(bar(Empty, stage));
        }
      };
      while (!bug.consumerForgetsFull && !h.mbarrierTest(bar(Full, stage), c / kStages & 1)) {
      }
      if (bug.earlyRelease)
        release();
      if (bug.fence == Bug::Early)
        h.proxyFence(Space::Shared);
      const u32 *chunk = shared<u32>(Data + stage * kStageBytes);
      sum += read(chunk + thread() % 64);
      if (!bug.earlyRelease && !bug.noRelease)
        release();
    }
    write(sums + cta() * 64 + thread(), sum);
  }
  Kernel ring(Bug bug = {}) const {
    return [this, bug] {
      init(bug);
      thread() < 64 ? consume(bug) : produce(bug);
    };
  }
  Kernel checkSums() const {
    return [this] {
      for (u32 t = 0; t < 128; ++t) {
        u32 sum = 0;
        for (u32 c = 0; c < kChunks; ++c)
          sum += image[c * kStageBytes / 4 + t % 64];
        ASSERT_EQ(sums[t], sum) << t;
      }
    };
  }
  /// Something is found under every schedule; one kind or the other.
  void expectFound(std::initializer_list<FindingKind> kinds, const Kernel &kernel, u32 seeds = 30) {
    for (u32 seed = 0; seed < seeds; ++seed)
      for (Schedule::Kind kind : {Schedule::RoundRobin, Schedule::Random, Schedule::Pct}) {
        before();
        const LaunchResult r = run(kShape, kernel, {kind, seed, 3, UINT64_MAX});
        ASSERT_TRUE(r.finding) << kind << " " << seed;
        EXPECT_TRUE(std::find(kinds.begin(), kinds.end(), r.finding->kind) != kinds.end()) << text(r);
      }
  }
};

TEST_F(RingTest, BulkCopies) {
  expectSilent(kShape, ring(), checkSums());
  options.check = false;
  expectSilent(kShape, ring(), checkSums(), 20);
}

TEST_F(RingTest, AsyncCopies) {
  Bug with;
  with.asyncCopies = true;
  expectSilent(kShape, ring(with), checkSums());
  options.check = false;
  expectSilent(kShape, ring(with), checkSums(), 20);
}

// What lies between plain loads and a bulk copy over them: a proxy fence, on either side of the arrival.
TEST_F(RingTest, LoadsBeforeACopy) {
  expectSilent(kShape, ring({.fence = Bug::Consumers}), checkSums());
  expectSilent(kShape, ring({.fence = Bug::OneLane}), checkSums());
  Bug async{.fence = Bug::None}; // these are no bulk copies
  async.asyncCopies = true;
  expectSilent(kShape, ring(async), checkSums());
  expectFound({FindingKind::CopyMisuse}, ring({.fence = Bug::Early}), 3);
  expectFound({FindingKind::CopyMisuse}, ring({.fence = Bug::None}), 3);
  before();
  const LaunchResult r = run(kShape, ring({.fence = Bug::None}));
  ASSERT_TRUE(r.finding);
  EXPECT_EQ(r.finding->what,
            "256 bytes at shared memory of CTA 0 + 1024 are overwritten by a bulk copy, they were read "
            "before, and no proxy fence lies between");
}

// A fence that another thread had is known through barriers; through atomics it is not.
TEST_F(RingTest, FenceOfAnother) {
  u32 *flag = zeros<u32>("flag", 1);
  before = [&] { executor.reset(reinterpret_cast<char *>(flag), Initial::Zero); };
  const auto kernel = [&](bool fenced, bool byBarrier, Space space) {
    return [=, this] {
      if (thread() == 0) {
        h.mbarrierInit(bar(Full), 1);
        h.proxyFence(Space::Shared);
      }
      syncThreads();
      if (thread() == 32) {
        write(shared<u32>(Data), 7u);
        if (fenced)
          h.proxyFence(space);
        h.atomic(AtomicOp::Store, flag, 4, 1, 0, Order::Release, Scope::Cta);
      }
      if (byBarrier)
        syncThreads();
      if (thread() == 0) {
        while (h.atomic(AtomicOp::Load, flag, 4, 0, 0, Order::Acquire, Scope::Cta) == 0) {
        }
        h.mbarrierArriveExpect(bar(Full), 16);
        h.copyBulk(shared<char>(Data), weights, 16, bar(Full));
        while (!h.mbarrierTest(bar(Full), 0)) {
        }
      }
    };
  };
  const LaunchShape shape{1, 64, 4096};
  expectSilent(shape, kernel(true, true, Space::Shared), [] {}, 10);
  expectAlways(FindingKind::CopyMisuse, shape, kernel(false, true, Space::Shared), 5);
  expectAlways(FindingKind::CopyMisuse, shape, kernel(true, true, Space::Global), 5);
  expectAlways(FindingKind::CopyMisuse, shape, kernel(true, false, Space::Shared), 5);
}

TEST_F(RingTest, SwappedParity) {
  expectFound({FindingKind::Deadlock, FindingKind::DataRace, FindingKind::MbarrierMisuse, FindingKind::PhaseOverrun},
              ring({.swapParity = true}), 3);
}

TEST_F(RingTest, OneArrivalTooFew) {
  // Empty waits for three warps, and two come.
  before();
  const LaunchResult r = run(kShape, ring({.arrivals = 1}));
  ASSERT_TRUE(r.finding);
  EXPECT_EQ(r.finding->kind, FindingKind::Deadlock);
  EXPECT_NE(text(r).find("polls the mbarrier at shared memory of CTA 0 + 64, phase 0: 1 of 3 arrivals missing"),
            std::string::npos)
      << text(r);
  expectFound({FindingKind::Deadlock}, ring({.arrivals = 1}), 3);
  expectFound({FindingKind::Deadlock}, ring({.noRelease = true}), 3);
}

TEST_F(RingTest, OneArrivalTooMany) {
  // A producer that first looks two phases late takes the phase for an older one, and waits for ever.
  expectFound({FindingKind::DataRace, FindingKind::PhaseOverrun, FindingKind::MbarrierMisuse, FindingKind::Deadlock},
              ring({.arrivals = -1}));
}

TEST_F(RingTest, WrongBytes) {
  before();
  LaunchResult r = run(kShape, ring({.bytes = 16}));
  ASSERT_TRUE(r.finding);
  EXPECT_EQ(r.finding->kind, FindingKind::Deadlock);
  EXPECT_NE(text(r).find("phase 0: 0 of 1 arrivals missing, 16 of 272 bytes missing"), std::string::npos) << text(r);
  expectFound({FindingKind::Deadlock}, ring({.bytes = 16}), 3);
  before();
  r = run(kShape, ring({.bytes = -16}));
  ASSERT_TRUE(r.finding);
  // The last piece completes nothing that was expected.
  EXPECT_NE(text(r).find("16 bytes more than expected have landed"), std::string::npos) << text(r);
}

TEST_F(RingTest, SlotReusedEarly) {
  expectFound({FindingKind::DataRace}, ring({.earlyRelease = true}));
  expectFound({FindingKind::DataRace, FindingKind::PhaseOverrun, FindingKind::MbarrierMisuse, FindingKind::CopyMisuse},
              ring({.noWait = true}));
}

TEST_F(RingTest, ReadBeforeItLanded) {
  expectFound({FindingKind::DataRace, FindingKind::UnwrittenRead}, ring({.consumerForgetsFull = true}));
  // The old bytes stay until then, and the other party is the copy.
  std::optional<Finding> found = expectSometimes(FindingKind::DataRace, {1, 64, 4096}, [&] {
    if (thread() < 4)
      write(shared<u32>(Data) + thread(), 5u);
    if (thread() == 0) {
      h.mbarrierInit(bar(Full), 1);
      h.proxyFence(Space::Shared);
    }
    syncThreads();
    if (thread() == 0) {
      h.proxyFence(Space::Shared);
      h.mbarrierArriveExpect(bar(Full), 16);
      h.copyBulk(shared<char>(Data), weights, 16, bar(Full));
      while (!h.mbarrierTest(bar(Full), 0)) {
      }
    }
    if (thread() == 40) {
      EXPECT_EQ(read(shared<u32>(Data)), 5u);
    }
  });
  ASSERT_TRUE(found);
  bool copy = false;
  for (const Finding::Party &p : found->parties)
    copy |= p.role.find("asynchronous copy") != std::string::npos && p.place.host && p.place.thread == 0;
  EXPECT_TRUE(copy);
}

TEST_F(RingTest, WrongSlot) {
  // The phase of one copy says nothing about another.
  expectSometimes(FindingKind::DataRace, {1, 64, 4096}, [&] {
    if (thread() < 8)
      write(shared<u32>(Data) + thread(), 5u);
    if (thread() == 0) {
      h.mbarrierInit(bar(Full, 0), 1);
      h.mbarrierInit(bar(Full, 1), 1);
      h.proxyFence(Space::Shared);
    }
    syncThreads();
    if (thread() == 0)
      for (u32 s = 0; s < 2; ++s) {
        h.proxyFence(Space::Shared);
        h.mbarrierArriveExpect(bar(Full, s), 16);
        h.copyBulk(shared<char>(Data + 16 * s), weights, 16, bar(Full, s));
      }
    while (!h.mbarrierTest(bar(Full, 1), 0)) {
    }
    read(shared<u32>(Data));
    while (!h.mbarrierTest(bar(Full, 0), 0)) {
    }
  });
}

TEST_F(RingTest, ProxyFence) {
  expectFound({FindingKind::CopyMisuse}, ring({.noProxyFence = true}));
  expectFound({FindingKind::CopyMisuse}, ring({.fenceOfGlobal = true}));
  Bug cp;
  cp.noProxyFence = cp.asyncCopies = true; // cp.async goes the way of plain accesses
  expectSilent(kShape, ring(cp), checkSums(), 10);
}

TEST_F(RingTest, UseOfMbarriers) {
  const auto misuse = [&](const Kernel &kernel) {
    return expectAlways(FindingKind::MbarrierMisuse, {1, 64, 1024}, kernel, 5).what;
  };
  EXPECT_EQ(misuse([&] {
              if (thread() == 0)
                h.mbarrierArrive(bar(Full));
            }),
            "the mbarrier at shared memory of CTA 0 + 0 is used before it was initialised");
  EXPECT_EQ(misuse([&] {
              if (thread() == 0)
                h.mbarrierInit(bar(Full), 0);
            }),
            "the mbarrier at shared memory of CTA 0 + 0 expects 0 arrivals: 1 to 1048575 are possible");
  EXPECT_EQ(misuse([&] {
              for (int i = 0; i < 2; ++i)
                if (thread() == 0)
                  h.mbarrierInit(bar(Full), 1);
            }),
            "the mbarrier at shared memory of CTA 0 + 0 is initialised a second time");
  EXPECT_EQ(misuse([&] {
              if (thread() != 0)
                return;
              h.mbarrierInit(bar(Full), 1);
              h.mbarrierArriveExpect(bar(Full), 16);
              h.mbarrierArrive(bar(Full));
            }),
            "more than the expected 1 threads arrive at the mbarrier at shared memory of CTA 0 + 0 in phase 0");
  EXPECT_EQ(misuse([&] {
              if (thread() != 0)
                return;
              h.mbarrierInit(bar(Full), 1);
              read(shared<u32>(4));
            }),
            "4 bytes at shared memory of CTA 0 + 4 are an mbarrier, and read as plain memory");
  misuse([&] {
    if (thread() != 0)
      return;
    h.mbarrierInit(bar(Full), 1);
    add(shared<u32>(4), 1u);
  });
  EXPECT_EQ(expectAlways(
                FindingKind::OutOfBounds, {1, 64, 1024}, [&] { h.mbarrierInit(reinterpret_cast<u64 *>(sums), 1); }, 2)
                .what,
            "an mbarrier at `sums` + 0, which is not shared memory of the thread's CTA");
  expectAlways(FindingKind::Misaligned, {1, 64, 1024}, [&] { h.mbarrierInit(shared<u64>(4), 1); }, 2);
  // An order, by nothing: relaxed words.
  u32 *flag = zeros<u32>("flag", 1);
  before = [=, this] { executor.reset(reinterpret_cast<char *>(flag), Initial::Zero); };
  EXPECT_EQ(misuse([&] {
              if (thread() == 0) {
                h.mbarrierInit(bar(Full), 1);
                store(flag, 1u);
              } else if (thread() == 40) {
                while (load(flag) == 0) {
                }
                h.mbarrierArrive(bar(Full));
              }
            }),
            "the mbarrier at shared memory of CTA 0 + 0 is used, and its initialisation is not ordered before");
}

TEST_F(RingTest, MbarrierOrdersItsThreads) {
  const auto kernel = [&](bool tests) {
    return [=, this] {
      if (thread() == 0)
        h.mbarrierInit(bar(Full), 32);
      syncThreads();
      for (u32 round = 0; round < 3; ++round) {
        if (thread() < 32) {
          write(shared<u32>(Data) + thread(), round);
          h.mbarrierArrive(bar(Full));
        }
        if (tests)
          while (!h.mbarrierTest(bar(Full), round & 1)) {
          }
        EXPECT_EQ(read(shared<u32>(Data) + (thread() * 5 + 1) % 32), round);
        syncThreads();
      }
    };
  };
  expectSilent({1, 64, 4096}, kernel(true), [] {}, 50);
  for (u32 seed = 0; seed < 10; ++seed) {
    const LaunchResult r = run({1, 64, 4096}, kernel(false), {Schedule::Random, seed, 3, UINT64_MAX});
    ASSERT_TRUE(r.finding);
    EXPECT_TRUE(r.finding->kind == FindingKind::DataRace || r.finding->kind == FindingKind::UnwrittenRead) << text(r);
  }
}

TEST_F(RingTest, PhaseOverrun) {
  // Thread 40 looks once per phase; nobody waits for it.
  const auto kernel = [&](bool waits) {
    return [=, this] {
      if (thread() == 0) {
        h.mbarrierInit(bar(Full), 1);
        h.mbarrierInit(bar(Empty), 1);
      }
      syncThreads();
      for (u32 round = 0; round < 6; ++round) {
        if (thread() == 0) {
          h.mbarrierArrive(bar(Full));
          while (waits && !h.mbarrierTest(bar(Empty), round & 1)) {
          }
        }
        if (thread() == 40) {
          while (!h.mbarrierTest(bar(Full), round & 1)) {
          }
          h.mbarrierArrive(bar(Empty));
        }
      }
    };
  };
  expectSilent({1, 64, 1024}, kernel(true), [] {}, 100);
  bool found = false;
  for (u32 seed = 0; seed < 300; ++seed) {
    const LaunchResult r = run({1, 64, 1024}, kernel(false), {Schedule::Random, seed, 3, UINT64_MAX});
    if (r.finding && r.finding->kind == FindingKind::PhaseOverrun) {
      found = true;
      EXPECT_EQ(r.finding->parties.size(), 2u);
    } else if (r.finding) {
      EXPECT_EQ(r.finding->kind, FindingKind::Deadlock) << text(r);
    }
  }
  EXPECT_TRUE(found);
}

TEST_F(RingTest, CopyMisuse) {
  const auto copies = [&](FindingKind kind, u32 to, const char *from, u32 bytes) {
    return expectAlways(
               kind, {1, 64, 4096},
               [=, this] {
                 if (thread() != 0)
                   return;
                 h.mbarrierInit(bar(Full), 1);
                 h.proxyFence(Space::Shared);
                 h.mbarrierArriveExpect(bar(Full), bytes);
                 h.copyBulk(to == ~0u ? (char *)sums : shared<char>(to), from, bytes, bar(Full));
                 while (!h.mbarrierTest(bar(Full), 0)) {
                 }
               },
               3)
        .what;
  };
  EXPECT_EQ(copies(FindingKind::CopyMisuse, Data, weights, 24), "a bulk copy is of 24 bytes: not a multiple of 16");
  EXPECT_EQ(copies(FindingKind::Misaligned, Data, weights + 8, 16),
            "an asynchronous copy from `weights` + 8 to shared memory of CTA 0 + 1024 is not aligned to 16 bytes");
  copies(FindingKind::Misaligned, Data + 4, weights, 16);
  EXPECT_EQ(copies(FindingKind::OutOfBounds, Data, weights + sizeof image - 16, 32),
            "32 bytes at `weights` + 2032, of 2048 bytes");
  copies(FindingKind::OutOfBounds, 4096 - 16, weights, 32);
  EXPECT_EQ(copies(FindingKind::CopyMisuse, ~0u, weights, 16),
            "an asynchronous copy goes to `sums` + 0, which is not shared memory");
  EXPECT_EQ(copies(FindingKind::MbarrierMisuse, 0, weights, 16).substr(0, 80),
            "16 bytes at shared memory of CTA 0 + 0 are overwritten by an asynchronous copy, ");
}

TEST_F(RingTest, CtaEndsUnderACopy) {
  const auto found = expectSometimes(FindingKind::CopyMisuse, {1, 64, 4096}, [&] {
    if (thread() == 0) {
      h.mbarrierInit(bar(Full), 1);
      h.proxyFence(Space::Shared);
      h.mbarrierArriveExpect(bar(Full), 1024);
      h.copyBulk(shared<char>(Data), weights, 1024, bar(Full));
    }
  });
  EXPECT_EQ(found->what,
            "the last thread of CTA 0 returns while asynchronous copies to its shared memory are under way");
}

TEST_F(RingTest, SourceOfACopy) {
  char *made = executor.allocate("made", 64, Initial::Unwritten);
  before = [&] { executor.reset(made, Initial::Unwritten); };
  const auto kernel = [&](bool writes, bool ordered, bool overwrites, bool fenced = true) {
    return [=, this] {
      if (thread() == 32 && writes)
        for (u32 i = 0; i < 4; ++i)
          write(reinterpret_cast<u32 *>(made) + i, i);
      if (thread() == 0) {
        h.mbarrierInit(bar(Full), 1);
        h.proxyFence(Space::Shared);
      }
      if (ordered)
        syncThreads();
      if (thread() == 0) {
        if (fenced)
          h.proxyFence(Space::Global);
        h.mbarrierArriveExpect(bar(Full), 16);
        h.copyBulk(shared<char>(Data), made, 16, bar(Full));
        if (overwrites)
          write(reinterpret_cast<u32 *>(made), 9u);
        while (!h.mbarrierTest(bar(Full), 0)) {
        }
        EXPECT_EQ(read(shared<u32>(Data) + 3), 3u);
        write(reinterpret_cast<u32 *>(made), 9u);
      }
    };
  };
  expectSilent({1, 64, 4096}, kernel(true, true, false), [] {}, 100);
  expectAlways(FindingKind::UnwrittenRead, {1, 64, 4096}, kernel(false, true, false));
  const auto found = expectAlways(FindingKind::CopyMisuse, {1, 64, 4096}, kernel(true, true, false, false));
  EXPECT_EQ(
      found.what,
      "16 bytes at `made` + 0 are read by a bulk copy, they were written before, and no proxy fence lies between");
  expectAlways(FindingKind::DataRace, {1, 64, 4096}, kernel(true, true, true));
  bool race = false;
  for (u32 seed = 0; seed < 50; ++seed) {
    before();
    const LaunchResult r = run({1, 64, 4096}, kernel(true, false, false), {Schedule::Random, seed, 3, UINT64_MAX});
    race |= r.finding && r.finding->kind == FindingKind::DataRace;
  }
  EXPECT_TRUE(race);
}

} // namespace
} // namespace megalith::cpu
