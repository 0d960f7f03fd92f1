#include "CpuTest.h"

namespace megalith::cpu {
namespace {

using GroupsTest = CpuTest;

TEST_F(GroupsTest, BarrierOrdersItsThreads) {
  expectSilent({2, 96, 4096}, [&] {
    if (thread() >= 64)
      return;
    for (u32 round = 0; round < 3; ++round) {
      write(shared<u32>() + thread(), round);
      h.barrier(3, 64);
      EXPECT_EQ(read(shared<u32>() + 63 - thread()), round);
      h.barrier(3, 64);
    }
  });
}

TEST_F(GroupsTest, BarrierTellsAllWhatAnyBrought) {
  expectSilent({2, 96, 4096}, [&] {
    if (thread() >= 64)
      return;
    for (u32 round = 0; round < 8; ++round) {
      write(shared<u32>() + thread(), round);
      const bool any = h.barrierAny(3, 64, round % 2 && thread() == 8 * round);
      EXPECT_EQ(any, round % 2 == 1);
      EXPECT_EQ(read(shared<u32>() + 63 - thread()), round);
      h.barrier(3, 64);
    }
  });
}

TEST_F(GroupsTest, BarrierDoesNotOrderOthers) {
  expectSometimes(FindingKind::DataRace, {1, 96, 4096}, [&] {
    if (thread() == 0)
      write(shared<u32>(), 1u);
    if (thread() < 64)
      h.barrier(1, 64);
    if (thread() == 90)
      write(shared<u32>(), 2u);
  });
}

TEST_F(GroupsTest, BarrierMisuse) {
  Finding f = expectAlways(FindingKind::BarrierMisuse, {1, 96, 0}, [&] { h.barrier(2, thread() < 32 ? 64 : 96); });
  ASSERT_EQ(f.parties.size(), 2u);
  EXPECT_EQ(f.parties[0].role, "comes for 96 threads");
  EXPECT_EQ(f.parties[1].role, "waits for 64 threads");
  f = expectAlways(FindingKind::BarrierMisuse, {1, 96, 0}, [&] { h.barrier(2, 48); });
  EXPECT_EQ(f.what, "barrier 2 is for 48 threads: not a multiple of 32 up to the 96 threads of the CTA");
  expectAlways(FindingKind::BarrierMisuse, {1, 96, 0}, [&] { h.barrier(16, 32); });
  options.check = false;
  expectAlways(FindingKind::BarrierMisuse, {1, 96, 0}, [&] { h.barrier(2, thread() < 32 ? 64 : 96); });
}

TEST_F(GroupsTest, MissingAtABarrier) {
  const Finding f = expectAlways(FindingKind::Deadlock, {1, 64, 0}, [&] {
    if (thread() != 9)
      h.barrier(1, 64);
  });
  ASSERT_EQ(f.parties.size(), 1u);
  EXPECT_EQ(f.parties[0].role, "waits at barrier 1: 63 of 64 threads have come; returned: 9");
  EXPECT_EQ(f.parties[0].alike, 63u);
  EXPECT_EQ(f.what, "no thread can go on: 63 of 64 wait, 1 have returned");
}

struct Deposit {
  u32 value, round;
};

TEST_F(GroupsTest, DepositsOfAFullWarp) {
  expectSilent({2, 64, 0}, [&] {
    for (u32 round = 0; round < 20; ++round) {
      const Deposit mine{thread() * 100 + round, round};
      const char *all = h.warp(WarpOp::Shuffle, ~0u, &mine, sizeof mine, nullptr);
      // Reads slowly: others may be at their next operation.
      if ((thread() + round) % 5 == 0)
        h.fence(Scope::Cta);
      for (u32 lane = 0; lane < 32; ++lane) {
        Deposit d;
        std::memcpy(&d, all + lane * kLaneBytes, sizeof d);
        ASSERT_EQ(d.value, (thread() / 32 * 32 + lane) * 100 + round);
        ASSERT_EQ(d.round, round);
      }
    }
  });
}

TEST_F(GroupsTest, DepositsOfChangingMasks) {
  expectSilent({1, 32, 0}, [&] {
    for (u32 round = 0; round < 20; ++round) {
      const u32 partner = thread() ^ (1u << round % 5), mask = 1u << thread() | 1u << partner;
      const u32 mine = thread() * 100 + round;
      const char *all = h.warp(WarpOp::Shuffle, mask, &mine, 4, nullptr);
      h.fence(Scope::Cta);
      u32 theirs;
      std::memcpy(&theirs, all + partner * kLaneBytes, 4);
      ASSERT_EQ(theirs, partner * 100 + round);
    }
  });
}

TEST_F(GroupsTest, CombineRunsOnceBeforeAnyReturns) {
  expectSilent(
      {1, 32, 0},
      [&] {
        for (u32 round = 1; round < 6; ++round) {
          char mine[kLaneBytes] = {};
          std::memcpy(mine, &round, 4);
          const char *all = h.warp(WarpOp::Mma, ~0u, mine, sizeof mine, [](char *deposits) {
            u32 sum = 0;
            for (u32 lane = 0; lane < 32; ++lane)
              sum += *reinterpret_cast<u32 *>(deposits + lane * kLaneBytes);
            for (u32 lane = 0; lane < 32; ++lane)
              *reinterpret_cast<u32 *>(deposits + lane * kLaneBytes + 44) += sum + lane;
          });
          ASSERT_EQ(*reinterpret_cast<const u32 *>(all + thread() * kLaneBytes + 44), 32 * round + thread());
        }
      },
      [] {}, 50);
}

TEST_F(GroupsTest, OnlySyncOrdersMemory) {
  const auto exchange = [&](WarpOp op) {
    return [this, op] {
      write(shared<u32>() + thread(), thread());
      h.warp(op, ~0u, nullptr, 0, nullptr);
      EXPECT_EQ(read(shared<u32>() + (thread() ^ 1)), thread() ^ 1);
    };
  };
  expectSilent({1, 32, 1024}, exchange(WarpOp::Sync));
  expectAlways(FindingKind::DataRace, {1, 32, 1024}, exchange(WarpOp::Shuffle));
  expectAlways(FindingKind::DataRace, {1, 32, 1024}, exchange(WarpOp::Vote));
}

TEST_F(GroupsTest, SyncOfSomeLanesOrdersThemOnly) {
  const Kernel kernel = [&] {
    const u32 half = thread() < 16 ? 0xFFFFu : 0xFFFF0000u;
    write(shared<u32>() + thread(), thread());
    syncWarp(half);
    EXPECT_EQ(read(shared<u32>() + (thread() ^ 15)), thread() ^ 15);
    syncWarp();
  };
  expectSilent({1, 32, 1024}, kernel);
  u32 *words = zeros<u32>("words", 32);
  expectAlways(FindingKind::DataRace, {1, 32, 0}, [&] {
    write(words + thread(), thread());
    syncWarp(thread() < 16 ? 0xFFFFu : 0xFFFF0000u);
    read(words + 31 - thread());
  });
}

TEST_F(GroupsTest, WarpDivergence) {
  Finding f = expectAlways(FindingKind::WarpDivergence, {1, 32, 0},
                           [&] { h.warp(thread() == 3 ? WarpOp::Vote : WarpOp::Sync, ~0u, nullptr, 0, nullptr); });
  EXPECT_EQ(f.what, "lanes of one warp wait for each other at different operations");
  ASSERT_EQ(f.parties.size(), 2u);
  EXPECT_EQ(f.parties[0].role, "comes to a Vote of lanes 0xffffffff with 0 bytes");
  EXPECT_EQ(f.parties[1].role, "waits at a Sync of lanes 0xffffffff with 0 bytes");
  f = expectAlways(FindingKind::WarpDivergence, {1, 32, 0},
                   [&] { h.warp(WarpOp::Sync, thread() == 3 ? 0xFFu : ~0u, nullptr, 0, nullptr); });
  f = expectAlways(FindingKind::WarpDivergence, {1, 32, 0}, [&] { h.warp(WarpOp::Vote, 2, nullptr, 0, nullptr); });
  EXPECT_NE(f.what.find("which it is not one of"), std::string::npos);
  const char bytes[8] = {};
  expectAlways(FindingKind::WarpDivergence, {1, 32, 0},
               [&] { h.warp(WarpOp::Shuffle, ~0u, bytes, thread() == 3 ? 8 : 4, nullptr); });
  options.check = false;
  f = expectAlways(FindingKind::WarpDivergence, {1, 32, 0}, [&] {
    if (thread() != 5)
      syncWarp();
  });
}

TEST_F(GroupsTest, LaneReturnsUnderItsWarp) {
  LaunchResult r = run({1, 32, 0}, [&] {
    if (thread() != 31)
      syncWarp();
  });
  ASSERT_TRUE(r.finding);
  EXPECT_EQ(r.finding->kind, FindingKind::WarpDivergence);
  EXPECT_EQ(r.finding->what, "lane 31 returns from the kernel while lanes of its warp wait for it");
  r = run({1, 32, 0}, [&] {
    if (thread() != 0)
      syncWarp();
  });
  ASSERT_TRUE(r.finding);
  EXPECT_EQ(r.finding->kind, FindingKind::WarpDivergence);
  EXPECT_EQ(r.finding->what, "a Sync names lanes 0x1, which have returned from the kernel");
}

TEST_F(GroupsTest, NestedMasksAreNoDivergence) {
  expectSilent(
      {1, 32, 0},
      [&] {
        if (thread() < 2)
          syncWarp(3);
        syncWarp();
      },
      [] {}, 20);
}

TEST_F(GroupsTest, WaitGraphOfAWarp) {
  const Finding f = expectAlways(FindingKind::Deadlock, {1, 64, 0}, [&] {
    if (thread() == 3 || thread() == 7)
      h.barrier(1, 32);
    else if (thread() < 32)
      h.warp(WarpOp::Shuffle, ~0u, nullptr, 0, nullptr);
  });
  ASSERT_EQ(f.parties.size(), 2u);
  EXPECT_EQ(f.parties[0].role, "waits for lanes 3, 7 of its warp at a Shuffle");
  EXPECT_EQ(f.parties[0].alike, 30u);
}

} // namespace
} // namespace megalith::cpu
