#include "CpuTest.h"
#include <set>

namespace megalith::cpu {
namespace {

struct AtomicsTest : CpuTest {
  /// Words of different 128-byte lines.
  u32 *x = zeros<u32>("x", 128), *y = x + 32, *data = x + 64, *out = x + 96;
  AtomicsTest() {
    before = [this] { executor.reset(reinterpret_cast<char *>(x), Initial::Zero); };
  }

  /// What (a, b) two threads of different CTAs (or of one) end with, over many seeds.
  std::set<std::pair<u32, u32>> outcomes(const Kernel &kernel, u32 ctas = 2) {
    std::set<std::pair<u32, u32>> seen;
    for (u32 seed = 0; seed < 400; ++seed)
      for (Schedule::Kind kind : {Schedule::Random, Schedule::Pct}) {
        before();
        const LaunchResult r = run({ctas, 64 / ctas, 0}, kernel, {kind, seed, 3, UINT64_MAX});
        EXPECT_EQ(text(r), "silent");
        seen.insert({out[0], out[1]});
      }
    return seen;
  }
  /// 0 or 1: who this thread is in a litmus test; others return.
  int side() const {
    if (me().ctas == 2)
      return thread() == 0 ? (int)cta() : -1;
    return thread() == 0 ? 0 : thread() == 40 ? 1 : -1;
  }
  void give(u32 i, u32 value) const { store(out + i, value); }
  using Pairs = std::set<std::pair<u32, u32>>;

  /// Message passing with plain data.
  Kernel message(Order writes, Order reads, Scope writeScope = Scope::Gpu, Scope readScope = Scope::Gpu) {
    return [=, this] {
      if (side() == 0) {
        write(data, 42u);
        store(x, 1u, writes, writeScope);
      } else if (side() == 1) {
        while (load(x, reads, readScope) == 0) {
        }
        EXPECT_EQ(read(data), 42u);
      }
    };
  }
  Kernel fencedMessage(Scope releaseScope, Scope acquireScope) {
    return [=, this] {
      if (side() == 0) {
        write(data, 42u);
        h.fence(releaseScope);
        store(x, 1u);
      } else if (side() == 1) {
        while (load(x) == 0) {
        }
        h.fence(acquireScope);
        EXPECT_EQ(read(data), 42u);
      }
    };
  }
};

TEST_F(AtomicsTest, MessagePassing) {
  const LaunchShape two{2, 32, 0};
  expectSilent(two, message(Order::Release, Order::Acquire));
  expectSometimes(FindingKind::DataRace, two, message(Order::Relaxed, Order::Acquire));
  expectSometimes(FindingKind::DataRace, two, message(Order::Release, Order::Relaxed));
  expectSometimes(FindingKind::DataRace, two, message(Order::Relaxed, Order::Relaxed));
}

TEST_F(AtomicsTest, ScopesOfMessages) {
  const LaunchShape two{2, 32, 0}, one{1, 64, 0};
  expectSometimes(FindingKind::DataRace, two, message(Order::Release, Order::Acquire, Scope::Cta));
  expectSometimes(FindingKind::DataRace, two, message(Order::Release, Order::Acquire, Scope::Gpu, Scope::Cta));
  expectSilent(one, message(Order::Release, Order::Acquire, Scope::Cta, Scope::Cta));
  expectSilent(two, message(Order::Release, Order::Acquire, Scope::System, Scope::System));
}

TEST_F(AtomicsTest, Fences) {
  const LaunchShape two{2, 32, 0}, one{1, 64, 0};
  expectSilent(two, fencedMessage(Scope::Gpu, Scope::Gpu));
  expectSometimes(FindingKind::DataRace, two, fencedMessage(Scope::Cta, Scope::Gpu));
  expectSometimes(FindingKind::DataRace, two, fencedMessage(Scope::Gpu, Scope::Cta));
  expectSilent(one, fencedMessage(Scope::Cta, Scope::Cta));
  // A fence after the flag does not help.
  expectSometimes(FindingKind::DataRace, two, [&] {
    if (side() == 0) {
      write(data, 42u);
      store(x, 1u);
      h.fence(Scope::Gpu);
    } else if (side() == 1) {
      while (load(x, Order::Acquire) == 0) {
      }
      read(data);
    }
  });
}

TEST_F(AtomicsTest, RelaxedStoresMayComeLate) {
  const auto kernel = [&](Order writes, Order reads) {
    return [=, this] {
      if (side() == 0) {
        store(x, 1u);
        store(y, 1u, writes);
      } else if (side() == 1) {
        const u32 b = load(y, reads), a = load(x);
        give(0, a);
        give(1, b);
      }
    };
  };
  EXPECT_EQ(outcomes(kernel(Order::Relaxed, Order::Relaxed)), (Pairs{{0, 0}, {0, 1}, {1, 0}, {1, 1}}));
  EXPECT_EQ(outcomes(kernel(Order::Release, Order::Acquire)), (Pairs{{0, 0}, {1, 0}, {1, 1}}));
}

TEST_F(AtomicsTest, StoreBuffering) {
  const auto kernel = [&](bool fences) {
    return [=, this] {
      if (side() < 0)
        return;
      store(side() ? y : x, 1u);
      if (fences)
        h.fence(Scope::Gpu);
      give(side(), load(side() ? x : y));
    };
  };
  EXPECT_TRUE(outcomes(kernel(false)).count({0, 0}));
  EXPECT_TRUE(outcomes(kernel(true)).count({0, 0})); // fence.acq_rel does not forbid it
}

TEST_F(AtomicsTest, ReadsOfOneLocationKeepTheirOrder) {
  const auto kernel = [&](bool handOver) {
    return [=, this] {
      if (side() == 0) {
        for (u32 i = 1; i < 5; ++i)
          store(x, i);
      } else if (side() == 1 && !handOver) {
        u32 last = 0;
        for (int i = 0; i < 6; ++i) {
          const u32 v = load(x);
          EXPECT_GE(v, last);
          last = v;
        }
      }
      if (handOver && cta() == 1) {
        // What one thread saw, a later one of its CTA cannot miss.
        if (thread() == 0)
          write(data, load(x));
        syncThreads();
        EXPECT_GE(load(x), read(data));
      }
    };
  };
  outcomes(kernel(false));
  outcomes(kernel(true));
}

TEST_F(AtomicsTest, OwnStoresAreSeen) {
  outcomes(
      [&] {
        store(x + thread(), thread() + 7);
        EXPECT_GE(load(x + thread()), thread() + 7);
      },
      1);
}

TEST_F(AtomicsTest, OldValuesEnd) {
  for (u32 seed = 0; seed < 100; ++seed) {
    before();
    u32 after = 0;
    EXPECT_EQ(text(run({2, 32, 0},
                       [&] {
                         if (side() == 0) {
                           store(x, 1u);
                           write(data, 1u);
                         } else if (side() == 1) {
                           while (load(x) == 0)
                             ++after;
                         }
                       },
                       {Schedule::Random, seed, 3, UINT64_MAX})),
              "silent");
    EXPECT_LT(after, 100u);
  }
}

TEST_F(AtomicsTest, ReadModifyWriteIsNeverLost) {
  expectSilent(
      {2, 64, 0},
      [&] {
        for (u32 i = 0; i < 4; ++i) {
          add(x, 1u);
          h.atomic(AtomicOp::Max, y, 4, cta() * 64 + thread(), 0, Order::Relaxed, Scope::Gpu);
          h.atomic(AtomicOp::Or, out, 4, 1u << thread() % 32, 0, Order::Relaxed, Scope::Gpu);
        }
      },
      [&] {
        ASSERT_EQ(*x, 512u);
        ASSERT_EQ(*y, 127u);
        ASSERT_EQ(*out, ~0u);
      },
      50);
}

TEST_F(AtomicsTest, Operations) {
  u64 *wide = zeros<u64>("wide", 2);
  for (bool check : {false, true}) {
    options.check = check;
    EXPECT_EQ(text(run({1, 1, 0},
                       [&] {
                         const auto op = [&](AtomicOp o, void *at, unsigned bytes, u64 operand, u64 compare = 0) {
                           return h.atomic(o, at, bytes, operand, compare, Order::Relaxed, Scope::Gpu);
                         };
                         op(AtomicOp::Store, x, 4, 10);
                         EXPECT_EQ(op(AtomicOp::Add, x, 4, ~0ull), 10u); // minus one, in 32 bits
                         EXPECT_EQ(op(AtomicOp::Min, x, 4, 3), 9u);
                         EXPECT_EQ(op(AtomicOp::Max, x, 4, 12), 3u);
                         EXPECT_EQ(op(AtomicOp::And, x, 4, 8), 12u);
                         EXPECT_EQ(op(AtomicOp::Or, x, 4, 3), 8u);
                         EXPECT_EQ(op(AtomicOp::CompareExchange, x, 4, 50, 10), 11u);
                         EXPECT_EQ(op(AtomicOp::CompareExchange, x, 4, 50, 11), 11u);
                         EXPECT_EQ(op(AtomicOp::Exchange, x, 4, 60), 50u);
                         EXPECT_EQ(op(AtomicOp::Load, x, 4, 0), 60u);
                         EXPECT_EQ(x[1], 0u);
                         op(AtomicOp::Store, wide, 8, 1ull << 40);
                         EXPECT_EQ(op(AtomicOp::Add, wide, 8, 5), 1ull << 40);
                         EXPECT_EQ(op(AtomicOp::CompareExchange, wide, 8, 1, 1ull << 40 | 5), 1ull << 40 | 5);
                         EXPECT_EQ(op(AtomicOp::Load, wide, 8, 0), 1u);
                         op(AtomicOp::Store, x, 4, 0);
                         op(AtomicOp::Store, wide, 8, 0);
                       })),
              "silent");
  }
}

/// A counter that several release and one acquires, through the others' operations.
TEST_F(AtomicsTest, ReleaseSequence) {
  const auto kernel = [&](Order release) {
    return [=, this] {
      if (thread() == 0 && cta() < 3) {
        write(data + cta(), cta() + 1);
        add(x, 1u, release);
      } else if (thread() == 0) {
        while (load(x, Order::Acquire) < 3) {
        }
        for (u32 i = 0; i < 3; ++i)
          EXPECT_EQ(read(data + i), i + 1);
      }
    };
  };
  expectSilent({4, 32, 0}, kernel(Order::Release));
  expectSometimes(FindingKind::DataRace, {4, 32, 0}, kernel(Order::Relaxed));
}

TEST_F(AtomicsTest, AStoreEndsAReleaseSequence) {
  expectSometimes(FindingKind::DataRace, {3, 32, 0}, [&] {
    if (thread() != 0)
      return;
    if (cta() == 0) {
      write(data, 1u);
      store(x, 1u, Order::Release);
    } else if (cta() == 1) {
      while (load(x) == 0) {
      }
      store(x, 2u);
    } else {
      while (load(x, Order::Acquire) != 2) {
      }
      read(data);
    }
  });
}

TEST_F(AtomicsTest, ReleaseIsCumulative) {
  expectSilent(
      {3, 32, 0},
      [&] {
        if (cta() == 0) {
          write(data + thread(), 5u);
          syncThreads();
          if (thread() == 0)
            store(x, 1u, Order::Release);
        } else if (cta() == 1 && thread() == 0) {
          while (load(x, Order::Acquire) == 0) {
          }
          store(y, 1u, Order::Release);
        } else if (cta() == 2) {
          if (thread() == 0)
            while (load(y, Order::Acquire) == 0) {
            }
          syncThreads();
          EXPECT_EQ(read(data + 31 - thread()), 5u);
        }
      },
      [] {}, 50);
}

TEST_F(AtomicsTest, PlainAndAtomicOfOneWord) {
  const Finding f = expectAlways(FindingKind::DataRace, {1, 64, 0}, [&] {
    if (thread() == 0)
      add(x, 1u);
    if (thread() == 40)
      write(x, 1u);
  });
  EXPECT_EQ(f.parties.size(), 2u);
  expectAlways(FindingKind::DataRace, {1, 64, 0}, [&] {
    if (thread() == 0)
      load(x);
    if (thread() == 40)
      write(x, 1u);
  });
  expectSilent(
      {1, 64, 0},
      [&] {
        if (thread() == 0)
          write(x, 1u);
        syncThreads();
        add(x, 1u);
        syncThreads();
        EXPECT_EQ(read(x), 65u);
        syncThreads();
        if (thread() == 1)
          write(x, 7u);
        syncThreads();
        EXPECT_EQ(load(x), 7u);
      },
      [] {}, 50);
  // Two added, and only one of them is ordered before the plain read.
  expectAlways(FindingKind::DataRace, {1, 64, 0}, [&] {
    if (thread() == 0 || thread() == 40)
      add(x, 1u);
    if (thread() < 32)
      h.barrier(1, 32);
    if (thread() == 1) {
      while (load(x) < 2) {
      }
      read(x);
    }
  });
}

TEST_F(AtomicsTest, OverlappingSizes) {
  expectAlways(FindingKind::DataRace, {1, 64, 0}, [&] {
    if (thread() == 0)
      add(x, 1u);
    if (thread() == 40)
      add(reinterpret_cast<u64 *>(x), 1ull);
  });
  expectSilent(
      {1, 64, 0},
      [&] {
        if (thread() == 0)
          add(x, 1u);
        syncThreads();
        if (thread() == 40)
          add(reinterpret_cast<u64 *>(x), 1ull << 32);
        syncThreads();
        EXPECT_EQ(load(x), 1u);
        EXPECT_EQ(load(x + 1), 1u);
      },
      [] {}, 20);
}

struct alignas(16) Flagged {
  u32 w[4];
};

TEST_F(AtomicsTest, FlaggedWords) {
  Flagged *flagged = reinterpret_cast<Flagged *>(x);
  for (bool check : {false, true}) {
    options.check = check;
    // Value and tag come together, in any order of the words.
    expectSilent(
        {2, 32, 0},
        [&] {
          if (cta() == 0) {
            const u32 v = thread() * 3 + 1;
            const Flagged t{{v, v + 1, v + 2, 1}};
            h.store16(flagged + thread() % 4 + thread() / 4 % 2 * 4 * (thread() < 8), &t, Order::Relaxed, Scope::Gpu);
          } else if (thread() < 4) {
            Flagged t;
            do
              h.load16(flagged + thread(), &t, Order::Relaxed, Scope::Gpu);
            while (t.w[3] == 0);
            EXPECT_EQ(t.w[1], t.w[0] + 1);
            EXPECT_EQ(t.w[2], t.w[0] + 2);
          }
        },
        [] {}, 20);
  }
  // A tag orders nothing else.
  expectSometimes(FindingKind::DataRace, {2, 32, 0}, [&] {
    Flagged t{{1, 1, 1, 1}};
    if (side() == 0) {
      write(data, 1u);
      h.store16(flagged, &t, Order::Relaxed, Scope::Gpu);
    } else if (side() == 1) {
      do
        h.load16(flagged, &t, Order::Relaxed, Scope::Gpu);
      while (t.w[3] == 0);
      read(data);
    }
  });
}

} // namespace
} // namespace megalith::cpu
