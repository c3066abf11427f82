// Order along one dimension.
// Sort: values[S'], indices[S'] <- self[S]: the first k elements of each line in ascending or descending
// order, and their positions. S' is S with k elements along the dimension; k < 0 stands for all of them.
// Equal elements keep their order, and NaN is the largest number. Search: out[S] <- sorted_sequence[B.., n],
// self[S], sorter: the number of elements of the ascending line that are less than (right: not greater than)
// each element of self. A sequence of rank 1 serves all elements, else S and the sequence differ only in
// their last sizes. With a sorter, element i of the line is that at its position sorter[i].
#include <bit>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/ops/family.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

constexpr Parameter kValuesAndIndices[] = {{"values"}, {"indices"}}, kSelf[] = {{"self"}}, kOut[] = {{"out"}};
constexpr Parameter kSequence[] = {{"sorted_sequence"}, {"self"}, {"sorter", kOptional | kIndices}};
constexpr Attribute kSortAttributes[] = {{"dim", AttributeType::kDimension},
                                         {"descending", AttributeType::kBool, false, 0},
                                         {"k", AttributeType::kInteger, false, -1}};
constexpr Attribute kSearchAttributes[] = {{"right", AttributeType::kBool, false, 0},
                                           {"out_int32", AttributeType::kBool, false, 0}};

Number AttributeOf(const Call& call, size_t at, int64_t otherwise) {
  return at < call.attributes.size() ? call.attributes[at] : Number::Integer(otherwise);
}

// Returns k, from 0 to the length of a line.
absl::StatusOr<int64_t> CountOf(const Call& call, int dim) {
  const Operand& self = call.inputs[0];
  const int64_t n = self.rank == 0 ? 1 : self.sizes[dim];
  const int64_t k = AttributeOf(call, 2, -1).AsInteger();
  if (k > n || (self.rank == 0 && k == 0))
    return absl::InvalidArgumentError(absl::StrCat("k (", k, ") for lines of ", n, " elements"));
  return k < 0 ? n : k;
}

absl::Status CheckSort(const Call& call) {
  const Operand& self = call.inputs[0];
  ASSIGN_OR_RETURN(const int dim, DimensionOf(call, self));
  ASSIGN_OR_RETURN(const int64_t k, CountOf(call, dim));
  Operand wanted = self;
  if (self.rank > 0) wanted.sizes[dim] = k;
  RETURN_IF_ERROR(NeedSameSizes(call.outputs[0], wanted, "values"));
  RETURN_IF_ERROR(NeedSameSizes(call.outputs[1], wanted, "indices"));
  RETURN_IF_ERROR(NeedSameType(call.outputs[0], "values", self.dtype));
  return NeedSameType(call.outputs[1], "indices", DType::kInt64);
}

absl::Status InferSort(const Call& call, std::span<Operand> outputs) {
  ASSIGN_OR_RETURN(const int dim, DimensionOf(call, call.inputs[0]));
  ASSIGN_OR_RETURN(const int64_t k, CountOf(call, dim));
  for (Operand& out : outputs) {
    SetOutputLike(out, call.inputs[0]);
    if (out.rank > 0) out.sizes[dim] = k;
  }
  outputs[1].dtype = DType::kInt64;
  return absl::OkStatus();
}

// The number of steps of a binary search, or of passes of a merge sort.
double StepsOf(const Operand& operand, int dim) {
  const int64_t n = operand.rank == 0 ? 1 : operand.sizes[dim];
  return 1 + std::bit_width(static_cast<uint64_t>(n));
}

double NumelOf(const Operand& operand) {
  double n = 1;
  for (int d = 0; d < operand.rank; ++d) n *= static_cast<double>(operand.sizes[d]);
  return n;
}

double CostOfSort(const Call& call) {
  const Operand& self = call.inputs[0];
  return NumelOf(self) * StepsOf(self, static_cast<int>(call.attributes[0].AsInteger()));
}

Sample SampleOfSort(const Row&, DType type) {
  return {{{{2, 3}, type}, {{2, 3}, DType::kInt64}}, {{{2, 3}, type}}, {Number::Integer(1)}};
}

// ---- search

DType TypeOfPositions(const Call& call) {
  return AttributeOf(call, 1, 0).AsInteger() != 0 ? DType::kInt32 : DType::kInt64;
}

absl::Status CheckSequence(const Operand& sequence, const Operand& self) {
  if (sequence.rank == 0) return Invalid("sorted_sequence has no dimension");
  if (sequence.rank == 1) return absl::OkStatus();
  bool fits = sequence.rank == self.rank;
  for (int d = 0; fits && d + 1 < self.rank; ++d) fits = sequence.sizes[d] == self.sizes[d];
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("sorted_sequence ", Describe(sequence), " does not fit self ", Describe(self)));
}

absl::Status CheckSearch(const Call& call) {
  const Operand &sequence = call.inputs[0], &self = call.inputs[1], &out = call.outputs[0];
  RETURN_IF_ERROR(NeedTensor(self, "self"));
  RETURN_IF_ERROR(NeedSameType(self, "self", sequence.dtype));
  RETURN_IF_ERROR(CheckSequence(sequence, self));
  if (call.inputs.size() > 2 && call.inputs[2].present)
    RETURN_IF_ERROR(NeedSameSizes(call.inputs[2], sequence, "sorter"));
  RETURN_IF_ERROR(NeedSameType(out, "output", TypeOfPositions(call)));
  return NeedSameSizes(out, self, "output");
}

absl::Status InferSearch(const Call& call, std::span<Operand> outputs) {
  SetOutputLike(outputs[0], call.inputs[1]);
  outputs[0].dtype = TypeOfPositions(call);
  return absl::OkStatus();
}

double CostOfSearch(const Call& call) {
  return NumelOf(call.inputs[1]) * StepsOf(call.inputs[0], call.inputs[0].rank - 1);
}

int64_t LimitOfSorter(const Call& call) {
  const Operand& sequence = call.inputs[0];
  return sequence.rank == 0 ? 1 : sequence.sizes[sequence.rank - 1];
}

Sample SampleOfSearch(const Row&, DType type) {
  return {{{{2, 4}, DType::kInt64}},
          {{{2, 2}, type}, {{2, 4}, type}, {{2, 2}, DType::kInt64}},
          {Number::Integer(0), Number::Integer(0)}};
}

}  // namespace

constinit const FamilyDescriptor kSortFamily = {.name = "sort",
                                                .title = "sorting",
                                                .outputs = kValuesAndIndices,
                                                .inputs = kSelf,
                                                .attributes = kSortAttributes,
                                                .check = CheckSort,
                                                .infer = InferSort,
                                                .cost = CostOfSort,
                                                .sample = SampleOfSort};
constinit const FamilyDescriptor kSearchFamily = {.name = "search",
                                                  .title = "searches",
                                                  .outputs = kOut,
                                                  .inputs = kSequence,
                                                  .attributes = kSearchAttributes,
                                                  .check = CheckSearch,
                                                  .infer = InferSearch,
                                                  .cost = CostOfSearch,
                                                  .index_limit = LimitOfSorter,
                                                  .sample = SampleOfSearch};

}  // namespace xpud::ops
