// The descriptor of an op family: all that is said of its operands, attributes, shapes and cost. Clients, the
// daemon's checks, the Python client, documentation, fuzzers and the isolation catalogue derive from it.
// Constants; any thread.
#pragma once

#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "proto/ops/operand.h"

namespace xpud::ops {

// How an operand takes part; flags.
enum Use : uint8_t {
  kPlain = 0,
  kOptional = 1,  // may be absent
  kIndices = 2,   // int32 or int64 positions. The kernel reports one out of range, and does not fault.
  kList = 4,      // any number of tensors
  kSized = 8,     // an output whose first size depends on values: see FamilyDescriptor::sized_by
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
  kBool,       // 0 or 1; decoding makes it so
  kDimension,  // of the typed input; clients count negative ones from the end
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
  double value = 0;  // the default of one that is not required; a list's is empty
};

// A small call that is right, for tests and fuzzers.
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
  // Empty for families whose rows say how many operands they have: maps and reductions.
  std::span<const Parameter> outputs = {};
  std::span<const Parameter> inputs = {};
  std::span<const Attribute> attributes = {};
  uint8_t lists = 0;              // how many of the parameters are lists
  uint8_t typed_input = 0;        // the input whose type is one of the row's
  bool takes_immediates = false;  // as inputs
  bool needs_dense = false;       // all tensors are row-major without gaps
  bool reads_outputs = false;     // uses what an output held before: adds to it, or writes a part of it
  // Of families with kSized outputs: the row that finds the size. Its inputs are the first inputs here, its
  // outputs the others; the attributes are the same. The last element of its last output is the size; without
  // elements it is 0. A client executes that row, reads the size (the one wait), and names outputs of that
  // size. It may name others: `check` allows all that are possible, and a kernel stays in its output whatever
  // its inputs hold.
  std::string_view sized_by = {};
  // InvalidArgument with what was found and what is allowed. Counts, presence, attributes and index types are
  // checked before (proto/ops/check.h). After this, a kernel cannot leave its operands.
  absl::Status (*check)(const Call& call) = nullptr;
  // Sets dtype, rank and sizes of fresh outputs, but leaves the first size of kSized ones. Null: the caller
  // chooses them, as the dimensions that a reduction keeps.
  absl::Status (*infer)(const Call& call, std::span<Operand> outputs) = nullptr;
  // Operations on elements, of families with more than one for each element that a call names. See CostOf.
  double (*cost)(const Call& call) = nullptr;
  // How many positions an index may name: 0 .. limit - 1. For families with indices.
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

// About how many operations on elements a call asks for. Bounds hostile work.
double CostOf(const Call& call);

}  // namespace xpud::ops
