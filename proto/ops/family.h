// The descriptor of an op family: its operands, attributes, shapes and cost. The clients, the daemon's
// checks, the documentation, the fuzzers and the isolation catalogue derive from it. Constants; thread-safe.
#pragma once

#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "proto/ops/operand.h"

namespace xpud::ops {

// Properties of an operand; flags.
enum Use : uint8_t {
  kPlain = 0,
  kOptional = 1,  // may be absent
  kIndices = 2,   // int32 or int64 positions. The kernel reports a position out of range and does not fault.
  kList = 4,      // any number of tensors
  kSized = 8,     // an output whose first size depends on values: see FamilyDescriptor::sized_by
  kUpdated =
      16,  // an output that depends on what it held: elements are added to it, or only some are written
};

// Elements that one of a count's results covers (families/compact.cc).
inline constexpr int64_t kCountBlock = 1024;

struct Parameter {
  std::string_view name;
  uint8_t use = kPlain;
  bool is(Use flag) const { return (use & flag) != 0; }
};

enum class AttributeType : uint8_t {
  kInteger,
  kReal,
  kBool,       // 0 or 1; decoding converts other values
  kDimension,  // of the typed input; clients add its rank to negative ones
  kDType,
  kIntegers,  // a list
  kReals,     // a list
};
constexpr bool IsList(AttributeType type) { return type >= AttributeType::kIntegers; }
constexpr bool IsReal(AttributeType type) {
  return type == AttributeType::kReal || type == AttributeType::kReals;
}

struct Attribute {
  std::string_view name;
  AttributeType type;
  bool required = true;
  double value = 0;  // the default if not required; a list's default is empty
};

// A small valid call, for tests and fuzzers.
struct Sample {
  struct Tensor {
    std::vector<int64_t> sizes;
    DType dtype = DType::kFloat32;
    bool immediate = false;
    Number number = {};
  };
  std::vector<Tensor> outputs, inputs;
  std::vector<Number> attributes = {};
  std::vector<uint16_t> lists = {};  // lengths
};

struct FamilyDescriptor {
  std::string_view name;   // in Python
  std::string_view title;  // in documentation
  // Empty for families whose rows give the number of operands: maps and reductions.
  std::span<const Parameter> outputs = {};
  std::span<const Parameter> inputs = {};
  std::span<const Attribute> attributes = {};
  uint8_t lists = 0;              // number of parameters that are lists
  uint8_t typed_input = 0;        // index of the input whose type must be one of the row's
  bool takes_immediates = false;  // as inputs
  bool needs_dense = false;       // all tensors are row-major without gaps
  // All operands are in lists, and element i of the outputs depends only on element i of the operands. A list
  // of one operand serves all elements (proto/ops/operand_lists.h). An element that reads poison is skipped
  // alone.
  bool lists_correspond = false;
  // Of families with kSized outputs: the row that finds the size. Its inputs are the first inputs here, its
  // outputs the others; the attributes are the same. The last element of its last output is the size; without
  // elements it is 0. A client executes that row, reads the size (the one wait), and names outputs of that
  // size. It may name others: `check` allows all that are possible, and a kernel stays in its output whatever
  // its inputs hold.
  std::string_view sized_by = {};
  // A call runs a kernel that its client has defined (Call::kernel). Without it, a sample is checked alone.
  bool runs_kernel = false;
  // Returns InvalidArgument with what was found and what is allowed. Counts, presence, attributes and index
  // types are checked before (proto/ops/check.h). A kernel of a call that passes stays within its operands.
  absl::Status (*check)(const Call& call) = nullptr;
  // Sets dtype, rank and sizes of new outputs, except the first size of kSized ones. Null if the caller
  // chooses them: a reduction's caller, for example, chooses which dimensions to keep.
  absl::Status (*infer)(const Call& call, std::span<Operand> outputs) = nullptr;
  // Returns the number of operations on elements. Null if it is one for each element of the operands. See
  // CostOf.
  double (*cost)(const Call& call) = nullptr;
  // Returns the limit for an index: positions 0 .. limit - 1 are valid. Null for families without indices.
  int64_t (*index_limit)(const Call& call) = nullptr;
  Sample (*sample)(const Row& row, DType type) = nullptr;

  bool reads_indices() const { return index_limit != nullptr; }
  bool is_sized() const { return !sized_by.empty(); }
};

#define XPUD_FAMILY(name) extern const FamilyDescriptor k##name##Family;
#include "proto/ops/families.inc"
#undef XPUD_FAMILY

inline constexpr const FamilyDescriptor* kFamilies[] = {
#define XPUD_FAMILY(name) &k##name##Family,
#include "proto/ops/families.inc"
#undef XPUD_FAMILY
};
static_assert(std::size(kFamilies) == kNumFamilies);

inline const FamilyDescriptor& DescriptorOf(Family family) { return *kFamilies[static_cast<size_t>(family)]; }
inline const FamilyDescriptor& DescriptorOf(const Row& row) { return DescriptorOf(row.family); }

// Returns whether a call's output depends on what it held before. Outputs of maps and reductions do not.
bool IsUpdated(const Call& call, size_t output);

// Returns the approximate number of operations on elements. Used to bound hostile work.
double CostOf(const Call& call);

}  // namespace xpud::ops
