#include "daemon/stream/lineage.h"

#include <initializer_list>
#include <vector>

#include "gtest/gtest.h"
#include "proto/ops/family.h"

namespace xpud::stream {
namespace {

using handles::Buffer;
using memory::Poison;

class LineageTest : public ::testing::Test {
 protected:
  static constexpr int64_t kElements = 4;
  static constexpr memory::Fault kFault = {7, 1};

  LineageTest() {
    for (uint32_t id = 1; id <= 12; ++id) {
      EXPECT_TRUE(table_.Admit({id, 1}).ok());
      table_.Insert({id, 1})->bytes = kElements * sizeof(float);
    }
  }

  Buffer& At(uint32_t id) { return *table_.Find({id, 1}); }

  // Sends a command, whose outputs count as written from then on. `size`: how many elements of each it
  // covers.
  void Send(uint64_t sequence, std::string_view row, std::initializer_list<uint32_t> outputs,
            std::initializer_list<uint32_t> inputs, std::vector<uint16_t> lists = {},
            int64_t size = kElements) {
    CheckedOp op;
    op.call.row = &ops::RowOf(row);
    for (const auto& ids : {outputs, inputs}) {
      for (const uint32_t id : ids) {
        kernels::Operand operand;
        operand.rank = 1;
        operand.sizes[0] = size;
        operand.strides[0] = 1;
        op.operands.push_back(operand);
        op.buffers.push_back(&At(id));
      }
    }
    op.outputs = static_cast<uint32_t>(outputs.size());
    op.inputs = static_cast<uint32_t>(inputs.size());
    op.call.lists = lists;
    lineage_.Note(sequence, op);
    for (const uint32_t id : outputs) At(id).allocation().written = true;
  }
  std::vector<uint32_t> Poisoned() {
    std::vector<uint32_t> ids;
    for (uint32_t id = 1; id <= 12; ++id) {
      const Buffer* const buffer = table_.Find({id, 1});
      if (buffer != nullptr && buffer->allocation().poison != Poison::kNone) ids.push_back(id);
    }
    return ids;
  }

  handles::TableSpace space_;
  handles::BufferTable table_{space_, Tenant{1}};
  uint64_t notes_ = 0;
  Lineage lineage_{table_, notes_};
};

using Ids = std::vector<uint32_t>;

TEST_F(LineageTest, WhatWasComputedFromABadResultIsPoisonedAndNothingElse) {
  Send(1, "mul.Tensor", {1}, {11, 12});
  Send(2, "index_select", {2}, {11, 12});  // the bad one
  Send(3, "mul.Tensor", {3}, {2, 1});
  Send(4, "mul.Tensor", {4}, {1, 1});
  Send(5, "mul.Tensor", {5}, {4, 3});
  lineage_.Spoil(2, kFault);
  EXPECT_EQ(Poisoned(), Ids({2, 3, 5}));
  for (const uint32_t id : Poisoned()) {
    EXPECT_EQ(At(id).allocation().poison, Poison::kFresh) << id;
    EXPECT_EQ(At(id).allocation().cause, kFault.cause) << id;
  }
}

TEST_F(LineageTest, WhatOverwritesABadResultEndsIt) {
  Send(1, "index_select", {2}, {11, 12});
  Send(2, "mul.Tensor", {3}, {2, 12});
  Send(3, "mul.Tensor", {2}, {11, 12});
  Send(4, "mul.Tensor", {3}, {11, 12}, {}, kElements / 2);
  Send(5, "mul.Tensor", {4}, {2, 12});
  lineage_.Spoil(1, kFault);
  EXPECT_EQ(Poisoned(), Ids({3})) << "only a part of 3 was overwritten";
}

TEST_F(LineageTest, AnUpdateWithABadIndexIsForgivenAndWhatUsedItIsNot) {
  At(2).allocation().written = true;
  At(3).allocation().written = true;
  Send(1, "index_select", {2}, {11, 12});
  Send(2, "mul.Tensor", {3}, {3, 2});
  lineage_.Spoil(1, kFault);
  EXPECT_EQ(Poisoned(), Ids({2, 3}));
  EXPECT_EQ(At(2).allocation().poison, Poison::kInPlace);
  EXPECT_EQ(At(3).allocation().poison, Poison::kFresh) << "the old contents are lost";
  table_.ForgiveInPlace(kFault);
  EXPECT_EQ(Poisoned(), Ids({3}));
}

TEST_F(LineageTest, CopiesHandItOn) {
  Send(1, "index_select", {2}, {11, 12});
  lineage_.NoteCopy(2, &At(2), At(3), true);
  lineage_.NoteCopy(3, nullptr, At(2), true);
  lineage_.NoteCopy(4, &At(2), At(4), true);
  lineage_.Spoil(1, kFault);
  EXPECT_EQ(Poisoned(), Ids({3}));
}

TEST_F(LineageTest, ElementsOfCorrespondingListsAreToldApart) {
  Send(1, "index_select", {2}, {11, 12});
  Send(2, "xpud::foreach", {3, 4, 5}, {6, 2, 7}, {3, 3, 0, 0, 0, 0});
  lineage_.Spoil(1, kFault);
  EXPECT_EQ(Poisoned(), Ids({2, 4}));
}

TEST_F(LineageTest, ABufferThatHasTheHandleOfAFreedOneIsNotPoisoned) {
  Send(1, "index_select", {2}, {11, 12});
  table_.Erase(At(2));
  ASSERT_TRUE(table_.Admit({2, 2}).ok());
  const Buffer& next = *table_.Insert({2, 2});
  lineage_.Spoil(1, kFault);
  EXPECT_EQ(next.allocation().poison, Poison::kNone);
}

TEST_F(LineageTest, NotesAreCountedAndForgotten) {
  Send(1, "mul.Tensor", {1}, {11, 12});
  Send(2, "mul.Tensor", {2}, {1, 12});
  EXPECT_EQ(notes_, 6u);
  EXPECT_FALSE(lineage_.is_full());
  lineage_.Forget(1);
  EXPECT_EQ(notes_, 3u);
  for (uint64_t sequence = 3; !lineage_.is_full(); ++sequence) Send(sequence, "mul.Tensor", {1}, {11, 12});
  EXPECT_GE(notes_, Lineage::kMaxNotes);
  lineage_.Forget(UINT64_MAX);
  EXPECT_EQ(notes_, 0u);
}

// The session may free its buffer before the device reports; others still have the memory.
TEST_F(LineageTest, SharedMemoryIsSpoiltThoughItsBufferIsGone) {
  memory::SharedAllocation shared, later;
  Send(1, "abs", {3}, {1});
  table_.Share(At(3), shared);
  lineage_.BecameShared(At(3));
  Send(2, "abs", {4}, {3});
  table_.Share(At(5), later);
  Send(3, "abs", {5}, {4});
  table_.Erase(At(3));
  table_.Erase(At(5));
  lineage_.Spoil(1, kFault);
  EXPECT_EQ(shared.poison, Poison::kFresh);
  EXPECT_EQ(later.poison, Poison::kFresh) << "computed from it";
  EXPECT_EQ(At(4).allocation().poison, Poison::kFresh);
  lineage_.Forget(3);
}

// What was lent has the fate of what the buffer had then, also if the buffer has other contents since, or is
// gone.
TEST_F(LineageTest, FindsWhatWasLent) {
  memory::SharedAllocation before, after, other;
  for (memory::SharedAllocation* const each : {&before, &after, &other}) each->is_shared = true;
  lineage_.NoteLend(1, At(2), before);
  Send(2, "embedding", {2}, {1});
  Send(3, "relu", {3}, {2});
  lineage_.NoteLend(4, At(3), after);
  lineage_.NoteLend(5, At(4), other);
  table_.Erase(At(3));
  lineage_.Spoil(2, kFault);
  EXPECT_EQ(before.poison, Poison::kNone);
  EXPECT_EQ(after.poison, Poison::kFresh);
  EXPECT_EQ(other.poison, Poison::kNone);
}

}  // namespace
}  // namespace xpud::stream
