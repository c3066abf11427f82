// Elements of corresponding lists that read poison.
#include "daemon/stream/poison.h"

#include <vector>

#include "gtest/gtest.h"
#include "proto/ops/family.h"

namespace xpud::stream {
namespace {

using handles::Buffer;
using memory::Poison;

// A call of a list family: buffer ids of each list, in order. Each operand fills its buffer.
class PoisonTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kElements = 4;
  static constexpr uint32_t kQueue = 3;

  Buffer& At(uint32_t id) { return *table_.Find({id, 1}); }

  void Make(std::string_view row, const std::vector<std::vector<uint32_t>>& lists) {
    for (uint32_t id = 1; table_.Admit({id, 1}).ok(); ++id) {
      if (id > kBuffers) break;
      Buffer* const buffer = table_.Insert({id, 1});
      buffer->bytes = kElements * sizeof(float);
      buffer->allocation().written = true;
    }
    op_.call.row = &ops::RowOf(row);
    const size_t outputs = ops::DescriptorOf(*op_.call.row).outputs.size();
    for (size_t list = 0; list < lists.size(); ++list) {
      lengths_.push_back(static_cast<uint16_t>(lists[list].size()));
      for (const uint32_t id : lists[list]) Add(id, list < outputs);
    }
    op_.call.outputs = {op_.operands.data(), op_.outputs};
    op_.call.inputs = {op_.operands.data() + op_.outputs, op_.inputs};
    op_.call.lists = lengths_;
  }

  // The ids of the operands that remain.
  std::vector<uint32_t> Remaining() {
    std::vector<uint32_t> ids;
    for (uint32_t i = 0; i < op_.count(); ++i)
      for (uint32_t id = 1; id <= kBuffers; ++id)
        if (op_.buffers[i] == &At(id)) ids.push_back(id);
    return ids;
  }

  static constexpr uint32_t kBuffers = 12;
  handles::TableSpace space_;
  handles::BufferTable table_{space_, Tenant{1}};
  std::vector<uint16_t> lengths_;
  CheckedOp op_;

 private:
  void Add(uint32_t id, bool output) {
    kernels::Operand operand;
    operand.rank = 1;
    operand.sizes[0] = kElements;
    operand.strides[0] = 1;
    op_.operands.push_back(operand);
    op_.buffers.push_back(&At(id));
    ++(output ? op_.outputs : op_.inputs);
  }
};

using Ids = std::vector<uint32_t>;

TEST_F(PoisonTest, AnElementThatReadsItIsLeftOutAlone) {
  Make("xpud::foreach", {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}, {10}, {}, {}});
  EXPECT_EQ(FindPoison(op_), nullptr);
  At(8).allocation().SetPoison(Poison::kFresh, {5, 1});
  EXPECT_NE(FindPoison(op_), nullptr);
  EXPECT_TRUE(SkipPoisonedElements(op_, table_, {5, kQueue}));
  EXPECT_EQ(Remaining(), Ids({1, 3, 4, 6, 7, 9, 10}));
  EXPECT_EQ(op_.outputs, 2u);
  EXPECT_EQ(op_.call.outputs.size(), 2u);
  EXPECT_EQ(op_.call.inputs.size(), 5u);
  EXPECT_EQ(std::vector<uint16_t>(op_.call.lists.begin(), op_.call.lists.end()),
            std::vector<uint16_t>({2, 2, 2, 1, 0, 0}));
  EXPECT_EQ(At(2).allocation().poison, Poison::kInPlace);
  EXPECT_EQ(At(1).allocation().poison, Poison::kNone);
  ASSERT_EQ(op_.skipped.size(), 1u);
  EXPECT_EQ(op_.skipped.front().first, &At(2).allocation());
  EXPECT_EQ(At(2).allocation().cause, 5u) << "as what it would have read";
  EXPECT_EQ(At(2).allocation().fault_queue, kQueue);
  EXPECT_EQ(FindPoison(op_), nullptr);
}

TEST_F(PoisonTest, WhatServesAllElementsStopsAll) {
  Make("xpud::foreach", {{1, 2}, {3, 4}, {5}, {}, {}, {}});
  At(5).allocation().poison = Poison::kFresh;
  EXPECT_FALSE(SkipPoisonedElements(op_, table_, {5, kQueue}));
}

TEST_F(PoisonTest, NothingRemainsOfAListWhoseElementsAllReadIt) {
  Make("xpud::foreach", {{1, 2}, {3, 4}, {}, {}, {}, {}});
  At(3).allocation().poison = At(4).allocation().poison = Poison::kInPlace;
  EXPECT_FALSE(SkipPoisonedElements(op_, table_, {5, kQueue}));
}

TEST_F(PoisonTest, ItSpreadsThroughTheListInOrder) {
  Make("xpud::foreach", {{1, 2, 3}, {4, 1, 5}, {}, {}, {}, {}});
  At(4).allocation().poison = Poison::kFresh;
  EXPECT_TRUE(SkipPoisonedElements(op_, table_, {5, kQueue}));
  EXPECT_EQ(Remaining(), Ids({3, 5}));
}

TEST_F(PoisonTest, AnOverwrittenOutputIsNotReadButAnUpdatedOneIs) {
  Make("xpud::foreach", {{1, 2}, {3, 4}, {}, {}, {}, {}});
  At(1).allocation().poison = Poison::kFresh;
  EXPECT_EQ(FindPoison(op_), nullptr);
  op_.call.row = &ops::RowOf("xpud::unscale");
  EXPECT_NE(FindPoison(op_), nullptr);
  EXPECT_FALSE(SkipPoisonedElements(op_, table_, {5, kQueue})) << "found_inf depends on all elements";
}

TEST_F(PoisonTest, AnOptimizerSkipsTheParameterWhoseStateIsPoisoned) {
  Make("xpud::fused_sgd", {{1, 2}, {3, 4}, {}, {5, 6}, {}, {}, {}});
  At(4).allocation().poison = Poison::kFresh;
  EXPECT_TRUE(SkipPoisonedElements(op_, table_, {5, kQueue}));
  EXPECT_EQ(Remaining(), Ids({1, 3, 5}));
  EXPECT_EQ(At(2).allocation().poison, Poison::kInPlace);
}

}  // namespace
}  // namespace xpud::stream
