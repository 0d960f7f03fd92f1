#include "CpuTest.h"

namespace megalith::cpu {
namespace {

struct MemoryTest : CpuTest {
  u32 *words = zeros<u32>("words", 64);
};

TEST_F(MemoryTest, WritesOfTwoThreads) {
  const Kernel kernel = [&] {
    if (thread() < 2)
      write(words + 32, thread());
  };
  const Finding f = expectAlways(FindingKind::DataRace, {1, 32, 0}, kernel);
  EXPECT_EQ(f.what,
            "4 bytes at `words` + 128 are written, and another thread wrote them without an order between the two");
  ASSERT_EQ(f.parties.size(), 2u);
  EXPECT_EQ(f.parties[0].role, "write");
  EXPECT_EQ(f.parties[0].place.thread, 1u);
  EXPECT_EQ(f.parties[1].role, "earlier write");
  EXPECT_EQ(f.parties[1].place.thread, 0u);
  EXPECT_NE(f.parties[0].place.pc, nullptr);
  EXPECT_EQ(f.parties[0].place.pc, f.parties[1].place.pc);
  options.check = false;
  EXPECT_EQ(text(run({1, 32, 0}, kernel)), "silent");
}

TEST_F(MemoryTest, ReadAndWrite) {
  // Either the read or the write comes first.
  const auto f = expectSometimes(FindingKind::DataRace, {2, 32, 0}, [&] {
    if (thread() == 0 && cta() == 0)
      write(words, 1u);
    if (thread() == 0 && cta() == 1)
      read(words);
  });
  EXPECT_EQ(f->parties.size(), 2u);
}

TEST_F(MemoryTest, NeighboursAreNoRace) {
  auto *halves = reinterpret_cast<uint16_t *>(words);
  expectSilent(
      {1, 64, 0},
      [&] {
        write(halves + thread(), (uint16_t)thread());
        EXPECT_EQ(read(halves + thread()), thread());
      },
      [] {}, 20);
}

TEST_F(MemoryTest, ManyReadersThenAWriter) {
  const auto kernel = [&](u32 writer, bool ordered) {
    return [=, this] {
      for (u32 round = 0; round < 3; ++round) {
        read(words + 5);
        if (ordered || thread() < 64)
          h.barrier(1, ordered ? 96 : 64);
        if (thread() == writer)
          write(words + 5, round);
        if (ordered || thread() < 64)
          h.barrier(1, ordered ? 96 : 64);
      }
    };
  };
  expectSilent({1, 96, 0}, kernel(9, true), [] {}, 50);
  // One of the readers is not among those at the barrier.
  const Finding f = expectAlways(FindingKind::DataRace, {1, 96, 0}, kernel(9, false));
  EXPECT_EQ(f.parties.size(), 2u);
}

TEST_F(MemoryTest, LaunchesAreInOrder) {
  for (u32 round = 0; round < 10; ++round)
    EXPECT_EQ(text(run({1, 32, 0},
                       [&] {
                         if (thread() == round)
                           write(words, read(words) + 1);
                       })),
              "silent");
  EXPECT_EQ(*words, 10u);
}

TEST_F(MemoryTest, SmallerGridsAfterLargerOnes) {
  const Kernel kernel = [&] {
    const u32 i = cta() * me().threads + thread();
    if (i < 64)
      write(words + i, i);
    else
      read(words + 63 - 63);
  };
  EXPECT_EQ(run({8, 64, 0}, kernel).finding->kind, FindingKind::DataRace);
  EXPECT_EQ(text(run({1, 64, 0}, kernel)), "silent");
  EXPECT_EQ(text(run({1, 32, 0}, kernel)), "silent");
}

TEST_F(MemoryTest, Unwritten) {
  u32 *rows = reinterpret_cast<u32 *>(executor.allocate("rows", 4096, Initial::Unwritten));
  const Kernel reads = [&] {
    if (thread() == 3)
      read(rows + 7);
  };
  const Finding f = expectAlways(FindingKind::UnwrittenRead, {1, 32, 0}, reads);
  EXPECT_EQ(f.what, "4 bytes at `rows` + 28 are read, and nobody wrote them");
  EXPECT_EQ(rows[7], 0xA5A5A5A5u);
  EXPECT_EQ(text(run({1, 32, 0}, [&] { write(rows + thread(), 1u); })), "silent");
  EXPECT_EQ(text(run({1, 32, 0}, reads)), "silent"); // stays written
  executor.reset(reinterpret_cast<char *>(rows), Initial::Unwritten);
  expectAlways(FindingKind::UnwrittenRead, {1, 32, 0}, reads);
  executor.reset(reinterpret_cast<char *>(rows), Initial::Zero);
  EXPECT_EQ(text(run({1, 32, 0}, reads)), "silent");
}

TEST_F(MemoryTest, SharedMemoryStartsUnwritten) {
  EXPECT_EQ(text(run({2, 32, 512}, [&] { write(shared<u32>() + thread(), 1u); })), "silent");
  const Finding f = expectAlways(FindingKind::UnwrittenRead, {2, 32, 512}, [&] {
    if (cta() == 1)
      read(shared<u32>() + thread());
  });
  EXPECT_EQ(f.what, "4 bytes at shared memory of CTA 1 + 0 are read, and nobody wrote them");
}

TEST_F(MemoryTest, OutOfBounds) {
  const auto bounds = [&](const Kernel &kernel) {
    return expectAlways(FindingKind::OutOfBounds, {2, 32, 512}, kernel, 2).what;
  };
  EXPECT_EQ(bounds([&] { read(words + 64); }), "4 bytes at `words` + 256, of 256 bytes");
  EXPECT_EQ(bounds([&] { read(reinterpret_cast<u64 *>(words + 63)); }), "8 bytes at `words` + 252, of 256 bytes");
  EXPECT_EQ(bounds([&] { write(words - 1, 0u); }), "4 bytes at `words` - 4, of 256 bytes");
  EXPECT_EQ(bounds([&] { h.access(nullptr, 4, 0, nullptr); }), "4 bytes at a null pointer (0)");
  EXPECT_EQ(bounds([&] { read(shared<u32>(512)); }), "4 bytes at shared memory of CTA 0 + 512, of 512 bytes");
  EXPECT_EQ(bounds([&] {
              if (cta() == 1)
                write(shared<u32>(16) - (512 << 10) / 4, 1u);
            }),
            "4 bytes at shared memory of CTA 0 + 16, which is not the thread's own CTA (1)");
  auto heap = std::make_unique<u32>(7);
  EXPECT_EQ(bounds([&] { read(heap.get()); }), "4 bytes outside of the memory of the device");
  EXPECT_EQ(bounds([&] { load(words + 64); }), "4 bytes at `words` + 256, of 256 bytes");
}

TEST_F(MemoryTest, OwnMemoryAndConstantsOfTheProgramAreNotChecked) {
  static u32 table[4] = {1, 2, 3, 4};
  expectSilent(
      {2, 32, 0},
      [&] {
        u32 local = 0;
        write(&local, thread());
        EXPECT_EQ(read(&local), thread());
        EXPECT_EQ(read(table + 2), 3u);
      },
      [] {}, 2);
}

TEST_F(MemoryTest, ConstantMemory) {
  const u32 image[4] = {5, 6, 7, 8};
  u32 *weights = reinterpret_cast<u32 *>(executor.allocate("weights", 16, Initial::Const, image));
  expectSilent(
      {2, 32, 0},
      [&] {
        EXPECT_EQ(read(weights + 2), 7u);
        h.readOnly(weights, 16);
        EXPECT_EQ(load(weights), 5u);
      },
      [] {}, 2);
  const Finding f = expectAlways(FindingKind::ReadOnlyWrite, {1, 32, 0}, [&] { write(weights + 1, 1u); });
  EXPECT_EQ(f.what, "4 bytes at `weights` + 4, which is constant, are written");
  expectAlways(FindingKind::ReadOnlyWrite, {1, 32, 0}, [&] { add(weights + 1, 1u); });
  expectAlways(FindingKind::OutOfBounds, {1, 32, 0}, [&] { h.readOnly(weights + 1, 16); });
}

TEST_F(MemoryTest, ReadOnlyPath) {
  expectSilent(
      {1, 64, 0},
      [&] {
        h.readOnly(words, 16);
        if (thread() == 0)
          write(words + 4, 1u);
      },
      [] {}, 5);
  // Ordered, but the path may still hold the old value.
  Finding f = expectAlways(FindingKind::ReadOnlyWrite, {1, 64, 0}, [&] {
    if (thread() == 0)
      write(words + 1, 1u);
    syncThreads();
    h.readOnly(words, 16);
  });
  EXPECT_EQ(f.what, "16 bytes at `words` + 0 are read through the read-only path (.nc), and this launch wrote them");
  EXPECT_EQ(f.parties.size(), 2u);
  const auto writesAfter = [&](bool atomically) {
    return [=, this] {
      h.readOnly(words, 16);
      syncThreads();
      if (thread() == 63)
        atomically ? store(words + 1, 1u) : write(words + 1, 1u);
    };
  };
  f = expectAlways(FindingKind::ReadOnlyWrite, {1, 64, 0}, writesAfter(false));
  EXPECT_NE(f.what.find("(.nc)"), std::string::npos);
  expectAlways(FindingKind::ReadOnlyWrite, {1, 64, 0}, writesAfter(true));
  EXPECT_EQ(text(run({1, 64, 0}, [&] { write(words + thread() % 2 * 2, 1u); })).substr(0, 9), "data-race");
}

TEST_F(MemoryTest, Misaligned) {
  char *bytes = reinterpret_cast<char *>(words);
  char out[16] = {};
  expectAlways(FindingKind::Misaligned, {1, 32, 0}, [&] { add(reinterpret_cast<u32 *>(bytes + 2), 1u); });
  expectAlways(FindingKind::Misaligned, {1, 32, 0}, [&] { add(reinterpret_cast<u64 *>(bytes + 4), 1ull); });
  expectAlways(FindingKind::Misaligned, {1, 32, 0}, [&] { h.load16(bytes + 8, out, Order::Relaxed, Scope::Gpu); });
  expectSilent({1, 32, 0}, [&] { h.load16(bytes + 16, out, Order::Relaxed, Scope::Gpu); }, [] {}, 2);
}

TEST_F(MemoryTest, ManySetsAreCollected) {
  // Few granules, ever new sets of readers.
  u32 *many = zeros<u32>("many", 8192);
  EXPECT_EQ(text(run({2, 64, 0},
                     [&] {
                       for (u32 round = 0; round < 300; ++round) {
                         for (u32 i = 0; i < 16; ++i)
                           read(many + (round + i * thread()) % 8192);
                         h.fence(Scope::Cta);
                         if (round % 100 == 99)
                           syncThreads();
                       }
                     },
                     {Schedule::Random, 1, 3, UINT64_MAX})),
            "silent");
}

} // namespace
} // namespace megalith::cpu
