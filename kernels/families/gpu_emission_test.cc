// The IR of each family as PTX for sm_90, accepted by ptxas if it is installed, and as SPIR-V 1.2, accepted
// by spirv-val. These tests check that it is well-formed; the families' tests run it on a GPU.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/dispatch/kernel_library.h"
#include "kernels/families/compact.h"
#include "kernels/families/convolution.h"
#include "kernels/families/ctc_loss.h"
#include "kernels/families/foreach.h"
#include "kernels/families/foreach_reduce.h"
#include "kernels/families/fused.h"
#include "kernels/families/gather.h"
#include "kernels/families/grid_sample.h"
#include "kernels/families/layer_norm.h"
#include "kernels/families/layer_norm_backward.h"
#include "kernels/families/map.h"
#include "kernels/families/max_pool.h"
#include "kernels/families/misbehaving.h"
#include "kernels/families/nll.h"
#include "kernels/families/planners.h"
#include "kernels/families/radix_sort.h"
#include "kernels/families/reduce.h"
#include "kernels/families/resample.h"
#include "kernels/families/scan.h"
#include "kernels/families/scatter.h"
#include "kernels/families/search.h"
#include "kernels/families/segments.h"
#include "kernels/families/softmax.h"
#include "kernels/families/sort.h"
#include "kernels/families/unfold.h"
#include "kernels/testing/code_check.h"

namespace xpud::kernels {
namespace {

using ops::DType;

class GpuEmissionTest : public ::testing::Test {
 protected:
  // Whether ptxas takes the next kernel: every fourth, in full all. It takes twice as long as the rest.
  static bool IsAssembled() {
    static const bool full = std::getenv("XPUD_TEST_FULL") != nullptr;
    static int seen = 0;
    return full || seen++ % 4 == 0;
  }

  void Check(const auto& skeleton, const auto& key, const std::string& what = "") {
    CheckPtx(skeleton, key, what);
    const std::string spirv = CheckSpirv(Target::kSpirv, skeleton, key, what);
    if (UsesDoubles(spirv)) {
      const CodeTarget without(Target::kSpirv, "", /*doubles=*/false);
      EXPECT_FALSE(UsesDoubles(CheckSpirv(without, skeleton, key, what + " without doubles"))) << what;
    }
  }

  void CheckPtx(const auto& skeleton, const auto& key, const std::string& more = "") {
    const std::string name = skeleton.Name(key), what = name + " " + more;
    const absl::StatusOr<std::string> ptx =
        KernelCompiler::Compile({Target::kNvptx, "sm_90"}, skeleton, skeleton.Pack(key));
    ASSERT_TRUE(ptx.ok()) << what << ": " << ptx.status();
    EXPECT_NE(ptx->find(".visible .entry " + name), std::string::npos) << what;
    EXPECT_NE(ptx->find(".target sm_90"), std::string::npos) << what;
    EXPECT_EQ(ptx->find(".extern .func"), std::string::npos)
        << what << " calls a function that no device has";
    if (IsAssembled()) EXPECT_TRUE(IsAccepted(kPtxAssembler, *ptx)) << what;
  }

  // Returns whether an instruction of the module begins with these words: an opcode, then operands.
  static bool Has(const std::string& spirv, std::initializer_list<uint32_t> wanted) {
    std::vector<uint32_t> words(spirv.size() / sizeof(uint32_t));
    std::memcpy(words.data(), spirv.data(), words.size() * sizeof(uint32_t));
    for (size_t at = 5; at + wanted.size() <= words.size(); at += std::max(words[at] >> 16, 1u)) {
      std::vector<uint32_t> found(words.begin() + static_cast<ptrdiff_t>(at),
                                  words.begin() + static_cast<ptrdiff_t>(at + wanted.size()));
      found[0] &= 0xffff;
      if (std::equal(wanted.begin(), wanted.end(), found.begin())) return true;
    }
    return false;
  }
  // Whether the module needs the capability Float64, which some GPUs lack.
  static bool UsesDoubles(const std::string& spirv) {
    constexpr uint32_t kCapability = 17, kFloat64 = 10;
    return Has(spirv, {kCapability, kFloat64});
  }
  void CheckHasNoDoubles(const auto& skeleton, const auto& key) {
    const absl::StatusOr<std::string> spirv =
        KernelCompiler::Compile(Target::kSpirv, skeleton, skeleton.Pack(key));
    ASSERT_TRUE(spirv.ok()) << spirv.status();
    EXPECT_FALSE(UsesDoubles(*spirv)) << skeleton.Name(key);
  }

  // Returns the module; empty if there is none.
  std::string CheckSpirv(const CodeTarget& target, const auto& skeleton, const auto& key,
                         const std::string& more) {
    const std::string what = skeleton.Name(key) + " " + more;
    const absl::StatusOr<std::string> spirv = KernelCompiler::Compile(target, skeleton, skeleton.Pack(key));
    EXPECT_TRUE(spirv.ok()) << what << ": " << spirv.status();
    if (!spirv.ok() || spirv->size() < 20) return "";
    EXPECT_EQ(spirv->substr(0, 8), std::string("\x03\x02\x23\x07\x00\x02\x01\x00", 8))
        << what << ": not SPIR-V 1.2";
    EXPECT_TRUE(IsAccepted(kSpirvValidator, *spirv)) << what;
    constexpr uint32_t kIAddCarry = 149, kISubBorrow = 150;  // Intel's compiler of 2022 ends the process
    EXPECT_FALSE(Has(*spirv, {kIAddCarry}) || Has(*spirv, {kISubBorrow})) << what;
    return *spirv;
  }
};

TEST_F(GpuEmissionTest, EveryElementWiseRow) {
  const MapSkeleton skeleton;
  for (const ops::Row& row : ops::kRows) {
    if (row.family != ops::Family::kMap) continue;
    MapKey key;
    key.row = &row;
    const bool integers = !ops::Contains(row.dtypes, DType::kFloat32) || row.number == 133;
    key.compute = integers ? DType::kInt64 : DType::kFloat32;
    key.rank = 2;
    key.narrow = true;
    key.operands = row.outputs + row.inputs;
    const uint32_t seeds = SeedInputs(ParseMap(row.formula)->expression);
    for (int o = 0; o < key.operands; ++o) {
      const bool seed = o >= row.outputs && (seeds >> (o - row.outputs) & 1) != 0;
      key.dtypes[static_cast<size_t>(o)] = seed ? DType::kInt64 : integers ? DType::kInt64 : DType::kBFloat16;
      key.access[static_cast<size_t>(o)] = seed ? Access::kImmediate : Access::kContiguous;
    }
    if (row.types == ops::TypeRule::kBool) key.dtypes[0] = DType::kBool;
    // f64 uses other math functions.
    if (!integers) {
      MapKey wide = key;
      wide.compute = DType::kFloat64;
      CheckPtx(skeleton, wide, "f64");
      CheckSpirv(Target::kSpirv, skeleton, wide, "f64");
    }
    Check(skeleton, key);
    if (row.number % 4 != 0 || row.inputs == 0) continue;
    MapKey blocks = key;
    blocks.block_log2 = integers ? 1 : 3;
    CheckPtx(skeleton, blocks, "in blocks");
    if (seeds != 0 || ParseMap(row.formula)->expression.Uses(Variable::kIndex)) continue;
    MapKey tiles = key;
    tiles.tiled = true;
    const size_t last = static_cast<size_t>(key.operands - 1);
    if (tiles.access[last] == Access::kContiguous) tiles.access[last] = Access::kStrided;
    Check(skeleton, tiles, "in tiles");
  }
}

TEST_F(GpuEmissionTest, ListsOfMapsAndReductions) {
  const ForeachSkeleton skeleton;
  for (const bool small : {false, true}) {
    ForeachKey key;
    key.map.row = &ops::RowOf("addcmul");
    key.map.operands = 5;
    key.map.dtypes = {DType::kBFloat16, DType::kBFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat32};
    key.map.access = {Access::kContiguous, Access::kContiguous, Access::kContiguous, Access::kBroadcast,
                      Access::kImmediate};
    key.in_place = 1;
    key.shared = small ? 12 : 0;
    key.small = small;
    Check(skeleton, key, small ? "small" : "");
    key.map.block_log2 = 3;
    CheckPtx(skeleton, key, "in blocks");
  }
  const ForeachReduceSkeleton reduce;
  for (const std::string_view row : {"linalg_vector_norm", "argmax"}) {
    ForeachReduceKey key = {.row = &ops::RowOf(row), .input = DType::kFloat16};
    Check(reduce, key);
    key.finish = true;
    Check(reduce, key);
  }
}

TEST_F(GpuEmissionTest, Optimizers) {
  const FusedSkeleton skeleton;
  for (const std::string_view row :
       {"xpud::fused_adam", "xpud::fused_adamw", "xpud::fused_sgd", "xpud::fused_adagrad", "xpud::unscale"}) {
    for (const DType type : {DType::kBFloat16, DType::kFloat64}) {
      FusedKey key = {.row = &ops::RowOf(row), .dtype = type};
      key.found_inf = key.grad_scale = key.state = key.decay = true;
      Check(skeleton, key);
      key.lr_tensor = key.small = true;
      key.block_log2 = 1;
      CheckPtx(skeleton, key, "in blocks");
    }
  }
}

TEST_F(GpuEmissionTest, EveryReductionInBothOrdersAndItsMerge) {
  const ReduceSkeleton skeleton;
  const ReduceMergeSkeleton merge;
  for (const ops::Row& row : ops::kRows) {
    if (row.family != ops::Family::kReduce && row.family != ops::Family::kJointReduce) continue;
    ReduceKey key;
    key.row = &row;
    key.inputs = {DType::kFloat16, DType::kFloat16, DType::kFloat32, DType::kFloat32};
    key.spread[2] = key.spread[3] = row.inputs == 4;
    key.outputs = {DType::kFloat32, DType::kInt64, DType::kInt64};
    if (!ops::Contains(row.dtypes, DType::kFloat32)) {
      key.inputs.fill(DType::kInt64);
      key.outputs.fill(DType::kInt64);
      key.accumulate = Scalar::kI64;
    }
    key.kept = key.reduced = 2;
    key.attribute = row.inputs == 1 && ParseReduce(row.formula)->expression.Uses(Variable::kB);
    for (const bool columns : {false, true}) {
      for (const bool partial : {false, true}) {
        key.columns = columns;
        key.partial = partial;
        Check(skeleton, key);
        ReduceKey blocks = key;
        blocks.warps = !columns;
        blocks.block_log2 = blocks.column_lanes_log2 = 3;
        CheckPtx(skeleton, blocks, "in blocks");
      }
    }
    key.columns = key.partial = false;
    Check(merge, key);
  }
}

// Parts of a reduction too: their states are of the type that they are computed in.
TEST_F(GpuEmissionTest, ReductionsOfFloatsHaveNoDoubles) {
  const ReduceSkeleton skeleton;
  const ReduceMergeSkeleton merge;
  for (const char* name : {"sum", "mean.dim", "linalg_vector_norm", "var.correction", "xpud::mean_rstd"}) {
    ReduceKey key;
    key.row = &ops::RowOf(name);
    key.outputs.fill(DType::kFloat32);
    key.attribute = ParseReduce(key.row->formula)->expression.Uses(Variable::kB);
    key.columns = key.partial = true;
    CheckHasNoDoubles(skeleton, key);
    key.columns = key.partial = false;
    CheckHasNoDoubles(merge, key);
    key.accumulate = Scalar::kF64;
    const absl::StatusOr<std::string> doubles =
        KernelCompiler::Compile(Target::kSpirv, merge, merge.Pack(key));
    ASSERT_TRUE(doubles.ok());
    EXPECT_TRUE(UsesDoubles(*doubles)) << "the check sees none";
  }
}

TEST_F(GpuEmissionTest, Softmax) {
  const SoftmaxSkeleton skeleton;
  for (int bits = 0; bits < 8; ++bits) {
    SoftmaxKey key;
    key.columns = bits & 1;
    key.logarithm = bits & 2;
    key.backward = bits & 4;
    key.contiguous = !key.columns;
    key.kept = 2;
    key.out = key.input = bits % 3 == 0 ? DType::kFloat32 : DType::kBFloat16;
    Check(skeleton, key);
    if (key.columns) continue;
    for (const bool warps : {false, true}) {
      key.rows = {.warps = warps, .block = 4, .blocks = 2};
      CheckPtx(skeleton, key, "held");
    }
  }
}

TEST_F(GpuEmissionTest, LayerNormAndGather) {
  const LayerNormSkeleton norm;
  LayerNormKey key;
  key.dtypes.fill(DType::kFloat16);
  key.present.fill(true);
  Check(norm, key);
  for (const bool warps : {false, true}) {
    key.rows = {.warps = warps, .block = 8, .blocks = 3};
    CheckPtx(norm, key, "held");
  }
  key.present[LayerNormKey::kMean] = key.present[LayerNormKey::kBias] = false;  // RMS norm
  CheckPtx(norm, key, "held, without a mean");
  key.rows = {};
  Check(norm, key, "without a mean");
  const GatherSkeleton gather;
  GatherKey gather_key;
  gather_key.rank = 2;
  gather_key.element = DType::kInt16;
  gather_key.access = {Access::kContiguous, Access::kBroadcast, Access::kContiguous};
  Check(gather, gather_key);
  gather_key.element = DType::kInt64;
  gather_key.pairs = true;
  CheckPtx(gather, gather_key, "of pairs");
}

TEST_F(GpuEmissionTest, LayerNormBackwardAndItsMerge) {
  const LayerNormBackwardSkeleton rows;
  const LayerNormMergeSkeleton merge;
  for (const bool weighted : {false, true}) {
    LayerNormBackwardKey key;
    key.types.fill(DType::kFloat16);
    key.weighted = weighted;
    Check(rows, key);
    Check(merge, key);
    for (const bool warps : {false, true}) {
      key.rows = {.warps = warps, .block = 4, .blocks = 2};
      CheckPtx(rows, key, "held");
    }
    key.rows = {};
    key.centred = false;
    Check(rows, key, "without a mean");
    Check(merge, key, "without a mean");
  }
}

TEST_F(GpuEmissionTest, EveryScanByLanesGroupsAndParts) {
  const ScanSkeleton skeleton;
  for (const ops::Row& row : ops::kRows) {
    if (row.family != ops::Family::kScan && row.family != ops::Family::kIndexedScan) continue;
    ScanKey key;
    key.row = &row;
    key.input = key.output = DType::kFloat16;
    key.rank = 2;
    key.lanes = true;
    Check(skeleton, key, "by lanes");
    key.lanes = false;
    Check(skeleton, key, "by groups");
    key.parts = true;
    Check(skeleton, key, "by parts");
    key.parts = false;
    key.totals = true;
    Check(skeleton, key, "totals");
  }
}

TEST_F(GpuEmissionTest, CountAndCompactOfEverySize) {
  const CompactSkeleton skeleton;
  for (const bool count : {false, true}) {
    for (int size_log2 = 0; size_log2 < 4; ++size_log2) {
      CompactKey key{.count = count, .size_log2 = size_log2, .floating = size_log2 > 0};
      key.columns = count ? 0 : 3;
      key.dense = size_log2 % 2 == 0;
      key.rank = key.dense ? 1 : 3;
      if (size_log2 == 3) key.ends = DType::kInt32;
      Check(skeleton, key);
    }
  }
}

TEST_F(GpuEmissionTest, SortedTilesAndMerges) {
  const SortSkeleton skeleton;
  for (const bool wide : {false, true}) {
    for (const bool last : {false, true}) {
      SortKey key = {
          .type = wide ? DType::kFloat64 : DType::kBFloat16, .wide = wide, .last = last, .rank = 2};
      key.descending = last;
      for (const int run : {0, 3, 11}) {
        key.run_log2 = run;
        Check(skeleton, key, absl::StrCat("of 1 << ", run));
      }
      key = {.wide = wide, .merges = true, .last = last, .rank = last ? 2 : 0};
      Check(skeleton, key);
    }
  }
}

TEST_F(GpuEmissionTest, RadixSortOfEveryType) {
  const RadixSkeleton skeleton;
  for (const DType type : {DType::kBool, DType::kInt8, DType::kBFloat16, DType::kFloat32, DType::kInt64}) {
    const bool single = ops::SizeOf(type) == 1;
    for (const int items : {4, 8, 16}) {
      RadixKey key = {.stage = RadixStage::kLine, .type = type, .first = true, .last = true};
      key.rank = 2;
      key.items = items;
      CheckPtx(skeleton, key, "of one tile");
    }
    for (const RadixStage stage : {RadixStage::kCount, RadixStage::kPlace}) {
      const bool places = stage == RadixStage::kPlace;
      RadixKey key = {.stage = stage, .type = type, .first = true, .last = single && places};
      key.items = ops::SizeOf(type) == 8 ? 12 : 16;
      key.skips = ops::SizeOf(type) > 2;
      key.rank = 2;
      CheckPtx(skeleton, key, "first");
      if (single) continue;
      key.first = false;
      key.last = places;
      key.descending = key.last;
      if (places) CheckPtx(skeleton, key, "last");
      key = {.stage = stage, .type = BitsOf(ops::SizeOf(type)), .skips = key.skips, .items = key.items};
      CheckPtx(skeleton, key, "middle");
      key.few = true;
      CheckPtx(skeleton, key, "of few tiles");
    }
  }
  for (const bool skips : {false, true}) {
    const RadixKey key = {.stage = RadixStage::kScan, .skips = skips};
    CheckPtx(skeleton, key);
  }
}

TEST_F(GpuEmissionTest, SearchesWithAndWithoutASorter) {
  const SearchSkeleton skeleton;
  for (const DType type : {DType::kFloat16, DType::kFloat64, DType::kUInt8, DType::kInt64}) {
    for (const bool sorts : {false, true}) {
      SearchKey key = {.type = type, .right = sorts, .sorts = sorts, .narrow = true, .rank = 2};
      key.access = {Access::kContiguous, Access::kContiguous, Access::kBroadcast,
                    sorts ? Access::kBroadcast : Access::kImmediate};
      Check(skeleton, key);
    }
  }
}

TEST_F(GpuEmissionTest, EveryScatter) {
  const ScatterSkeleton skeleton;
  for (const ops::Row& row : ops::kRows) {
    if (row.family != ops::Family::kScatter) continue;
    for (const DType type : {DType::kFloat32, DType::kBFloat16, DType::kInt64}) {
      ScatterKey key{.row = &row, .type = type, .source = type, .rank = 2};
      Check(skeleton, key);
      key.immediate = true;
      Check(skeleton, key, "of a number");
      if (row.formula == "b" || type != DType::kBFloat16) {
        Check(skeleton, ScatterKey{.by = ScatterBy::kElement, .row = &row, .type = type, .source = type});
      }
      Check(skeleton, ScatterKey{.by = ScatterBy::kPrepare, .row = &row});
      key.by = ScatterBy::kRun;
      key.immediate = false;
      Check(skeleton, key);
    }
  }
  ScatterKey blocks{.by = ScatterBy::kElement, .row = &ops::RowOf("xpud::scatter_add"), .rank = 2};
  blocks.blocks = true;
  CheckPtx(skeleton, blocks, "in blocks");
}

TEST_F(GpuEmissionTest, EverySegmentReduction) {
  const SegmentsSkeleton skeleton;
  for (const ops::Row& row : ops::kRows) {
    if (row.family != ops::Family::kSegments) continue;
    for (const DType type : {DType::kFloat32, DType::kFloat16, DType::kInt64}) {
      SegmentsKey key{.row = &row, .data = type};
      Check(skeleton, key);
      key.indexed = key.weighted = true;
      Check(skeleton, key, "with index and weights");
    }
  }
}

TEST_F(GpuEmissionTest, NllBothWaysAndInEveryStage) {
  const NllForwardSkeleton forward;
  const NllBackwardSkeleton backward;
  for (const bool mean : {false, true}) {
    NllKey key;
    key.weighted = key.mean = mean;
    for (const NllStage stage :
         {NllStage::kEach, NllStage::kSum, NllStage::kPart, NllStage::kWeights, NllStage::kMerge}) {
      key.stage = stage;
      Check(forward, key);
    }
    key.planes = true;
    Check(forward, key, "planes");
    key.stage = NllStage::kEach;
    Check(backward, key, "planes");
    key.planes = false;
    Check(backward, key);
  }
}

TEST_F(GpuEmissionTest, CtcLossBothWays) {
  for (const DType type : {DType::kFloat32, DType::kFloat64}) {
    for (const bool beta : {false, true}) Check(CtcStatesSkeleton(), CtcKey{.type = type, .beta = beta});
    Check(CtcGradientSkeleton(), CtcKey{.type = type, .target = DType::kInt32, .beta = true});
  }
}

TEST_F(GpuEmissionTest, EveryResamplingBothWays) {
  const ResampleTableSkeleton table;
  for (int64_t kind = 0; kind <= ops::kLastResampleKind; ++kind) {
    for (const bool transposed : {false, true}) {
      const ResampleTableKey key{.kind = static_cast<ops::ResampleKind>(kind),
                                 .real = kind % 2 == 0 ? Scalar::kF32 : Scalar::kF64,
                                 .transposed = transposed,
                                 .half_pixel = transposed};
      Check(table, key, std::to_string(kind));
    }
  }
  const ResamplePassSkeleton pass;
  for (const int taps : {0, 2}) {
    for (const PassForm form : {PassForm::kItems, PassForm::kElements}) {
      ResamplePassKey key{.input = DType::kBFloat16, .form = form, .taps = taps, .rank = 2};
      Check(pass, key);
      key.input = key.output = DType::kUInt8;
      key.real = Scalar::kU8;
      key.copies = true;
      Check(pass, key, "copies");
    }
  }
}

TEST_F(GpuEmissionTest, MaxPoolBothWaysAndUnpool) {
  const MaxPoolSkeleton skeleton;
  for (const bool backward : {false, true}) {
    for (const PlaneForm form : {PlaneForm::kPlanes, PlaneForm::kElements}) {
      for (const DType type : {DType::kFloat16, DType::kFloat64}) {
        MaxPoolKey key{.type = type, .backward = backward, .dilated = true, .form = form, .rank = 2};
        Check(skeleton, key);
        key.adaptive = true;
        Check(skeleton, key, "adaptive");
      }
    }
  }
  Check(MaxUnpoolSkeleton(), MaxUnpoolKey{.element = DType::kInt16, .rank = 2});
}

TEST_F(GpuEmissionTest, UnfoldBothWays) {
  const UnfoldSkeleton skeleton;
  for (const bool folds : {false, true}) {
    for (const bool steps : {false, true})
      Check(skeleton, UnfoldKey{.type = DType::kFloat16, .folds = folds, .steps = steps});
  }
  Check(skeleton, UnfoldKey{.type = DType::kBool, .folds = true, .adjacent = {true, true}});
}

TEST_F(GpuEmissionTest, GridSampleOfEveryMode) {
  const GridSampleSkeleton skeleton;
  for (int which = 0; which < 27; ++which) {
    GridSampleKey key{.type = which % 2 == 0 ? DType::kFloat16 : DType::kFloat64,
                      .part = static_cast<GridPart>(which / 9),
                      .mode = static_cast<GridMode>(which / 3 % 3),
                      .padding = static_cast<GridPadding>(which % 3)};
    key.volumes = key.mode != GridMode::kCubic && which % 2 == 0;
    Check(skeleton, key, std::to_string(which));
  }
}

TEST_F(GpuEmissionTest, KernelsThatMisbehaveAreNotOptimisedAway) {
  const MisbehavingSkeleton skeleton;
  for (const bool endless : {false, true}) {
    const MisbehavingKey key{.endless = endless};
    Check(skeleton, key);
    const std::string ptx = *KernelCompiler::Compile({Target::kNvptx, "sm_90"}, skeleton, skeleton.Pack(key));
    EXPECT_NE(ptx.find(endless ? "ld.volatile.global" : "st.volatile.global"), std::string::npos) << ptx;
    EXPECT_EQ(ptx.find("bra") != std::string::npos, endless) << ptx;
  }
}

TEST_F(GpuEmissionTest, Convolution) {
  const ConvolutionSkeleton skeleton;
  for (const char* const row : {"xpud::convolution", "xpud::convolution_input", "xpud::convolution_weight"}) {
    for (const int spatial : {1, 2, 3}) {
      for (const DType type : {DType::kFloat32, DType::kBFloat16}) {
        const bool bias = ops::RowOf(row).inputs == 3 && spatial == 2;
        Check(skeleton, ConvolutionKey{&ops::RowOf(row), type, spatial, bias});
      }
    }
  }
}

// A family's sample as operands, all at one address: nothing runs.
class SampleCall {
 public:
  SampleCall(const ops::Row& row, DType type) : sample_(ops::DescriptorOf(row).sample(row, type)) {
    for (const ops::Sample::Tensor& tensor : sample_.outputs) outputs_.push_back(OperandOf(tensor));
    for (const ops::Sample::Tensor& tensor : sample_.inputs) inputs_.push_back(OperandOf(tensor));
    call_ = {.row = &row,
             .compute = type,
             .outputs = outputs_,
             .inputs = inputs_,
             .attributes = sample_.attributes,
             .error_word = reinterpret_cast<uint64_t*>(kAddress),
             .lists = sample_.lists};
  }
  const OpCall& call() const { return call_; }

  static constexpr uintptr_t kAddress = 0x100000;

 private:
  static Operand OperandOf(const ops::Sample::Tensor& tensor) {
    Operand operand;
    if (!tensor.immediate) operand.data = reinterpret_cast<void*>(kAddress);
    operand.dtype = tensor.dtype;
    operand.immediate = tensor.immediate;
    operand.number = tensor.number;
    operand.rank = static_cast<uint8_t>(tensor.sizes.size());
    int64_t stride = 1;
    for (size_t d = operand.rank; d-- > 0; stride *= operand.sizes[d]) {
      operand.sizes[d] = tensor.sizes[d];
      operand.strides[d] = stride;
    }
    return operand;
  }

  ops::Sample sample_;
  std::vector<Operand> outputs_, inputs_;
  OpCall call_;
};

// A call of each family that has kernels here, planned as in the daemon: also of those that no test above
// knows.
TEST_F(GpuEmissionTest, ASampleOfEveryFamily) {
  for (const Target target : {Target::kNvptx, Target::kSpirv}) {
    KernelLibrary::Options options;
    options.target = target;
    options.test_kernels = true;
    const auto library = KernelLibrary::Create(options);
    ASSERT_TRUE(library.ok()) << library.status();
    std::set<ops::Family> seen;
    for (const ops::Row& row : ops::kRows) {
      if (*kPlanners[static_cast<size_t>(row.family)] == nullptr || !seen.insert(row.family).second) continue;
      if (ops::DescriptorOf(row).runs_kernel) continue;  // kernels/loops has tests of its own
      const DType type = ops::Contains(row.dtypes, DType::kFloat32) ? DType::kFloat32 : DType::kInt64;
      const SampleCall sample(row, type);
      const auto workspace = [](size_t) -> absl::StatusOr<void*> {
        return reinterpret_cast<void*>(SampleCall::kAddress);
      };
      LaunchList launches;
      absl::StatusOr<Readiness> readiness = Readiness::kCompiling;
      while (readiness.ok() && *readiness == Readiness::kCompiling) {
        readiness = (*library)->Plan(sample.call(), workspace, launches);
        (*library)->WaitForCompiles();
      }
      ASSERT_TRUE(readiness.ok()) << row.aten << ": " << readiness.status();
      EXPECT_GT(launches.size(), 0u) << row.aten;
      for (size_t i = 0; i < launches.size(); ++i) {
        const std::string& code = launches[i].kernel().module->bytes;
        EXPECT_TRUE(IsAccepted(target == Target::kNvptx ? kPtxAssembler : kSpirvValidator, code)) << row.aten;
      }
    }
  }
}

}  // namespace
}  // namespace xpud::kernels
