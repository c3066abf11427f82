#include "proto/ops/families/order.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

// Returns k, from 0 to the length of a line.
absl::StatusOr<int64_t> CountOf(const SortCall<Given>& sort, int dim) {
  const int64_t n = sort.self->rank == 0 ? 1 : sort.self->sizes[dim];
  if (sort.k > n || (sort.self->rank == 0 && sort.k == 0))
    return absl::InvalidArgumentError(absl::StrCat("k (", sort.k, ") for lines of ", n, " elements"));
  return sort.k < 0 ? n : sort.k;
}

absl::Status CheckSort(const Call& call) {
  const auto sort = Read<SortCall>(call);
  const Operand& self = *sort.self;
  ASSIGN_OR_RETURN(const int dim, DimensionOf(sort.dim, self));
  ASSIGN_OR_RETURN(const int64_t k, CountOf(sort, dim));
  Operand wanted = self;
  if (self.rank > 0) wanted.sizes[dim] = k;
  RETURN_IF_ERROR(NeedSameSizes(*sort.values, wanted, "values"));
  RETURN_IF_ERROR(NeedSameSizes(*sort.indices, wanted, "indices"));
  RETURN_IF_ERROR(NeedSameType(*sort.values, "values", self.dtype));
  return NeedSameType(*sort.indices, "indices", DType::kInt64);
}

absl::Status InferSort(const Call& call, std::span<Operand> outputs) {
  const auto sort = Read<SortCall>(call);
  ASSIGN_OR_RETURN(const int dim, DimensionOf(sort.dim, *sort.self));
  ASSIGN_OR_RETURN(const int64_t k, CountOf(sort, dim));
  for (Operand& out : outputs) {
    SetOutputLike(out, *sort.self);
    if (out.rank > 0) out.sizes[dim] = k;
  }
  Outputs<SortCall>(outputs).indices->dtype = DType::kInt64;
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
  const auto sort = Read<SortCall>(call);
  return NumelOf(*sort.self) * StepsOf(*sort.self, static_cast<int>(sort.dim));
}

Sample SampleOfSort(const Row&, DType type) {
  const Sample::Tensor tensor = {{2, 3}, type};
  return SampleOf(SortCall<Sample::Tensor>{
      .values = tensor, .indices = {{2, 3}, DType::kInt64}, .self = tensor, .dim = 1});
}

// ---- search

DType TypeOfPositions(const SearchCall<Given>& search) {
  return search.out_int32 ? DType::kInt32 : DType::kInt64;
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
  const auto search = Read<SearchCall>(call);
  const Operand &sequence = *search.sorted_sequence, &self = *search.self;
  RETURN_IF_ERROR(NeedTensor(self, "self"));
  RETURN_IF_ERROR(NeedSameType(self, "self", sequence.dtype));
  RETURN_IF_ERROR(CheckSequence(sequence, self));
  if (search.sorter->present) RETURN_IF_ERROR(NeedSameSizes(*search.sorter, sequence, "sorter"));
  RETURN_IF_ERROR(NeedSameType(*search.out, "output", TypeOfPositions(search)));
  return NeedSameSizes(*search.out, self, "output");
}

absl::Status InferSearch(const Call& call, std::span<Operand> outputs) {
  const auto search = Read<SearchCall>(call);
  Operand& out = *Outputs<SearchCall>(outputs).out;
  SetOutputLike(out, *search.self);
  out.dtype = TypeOfPositions(search);
  return absl::OkStatus();
}

double CostOfSearch(const Call& call) {
  const auto search = Read<SearchCall>(call);
  const Operand& sequence = *search.sorted_sequence;
  return NumelOf(*search.self) * StepsOf(sequence, sequence.rank - 1);
}

int64_t LimitOfSorter(const Call& call) {
  const Operand& sequence = *Read<SearchCall>(call).sorted_sequence;
  return sequence.rank == 0 ? 1 : sequence.sizes[sequence.rank - 1];
}

Sample SampleOfSearch(const Row&, DType type) {
  return SampleOf(SearchCall<Sample::Tensor>{.out = {{2, 4}, DType::kInt64},
                                             .sorted_sequence = {{2, 2}, type},
                                             .self = {{2, 4}, type},
                                             .sorter = {{2, 2}, DType::kInt64}});
}

}  // namespace

constinit const FamilyDescriptor kSortFamily = Described<SortCall>({.name = "sort",
                                                                    .title = "sorting",
                                                                    .check = CheckSort,
                                                                    .infer = InferSort,
                                                                    .cost = CostOfSort,
                                                                    .sample = SampleOfSort});
constinit const FamilyDescriptor kSearchFamily = Described<SearchCall>({.name = "search",
                                                                        .title = "searches",
                                                                        .check = CheckSearch,
                                                                        .infer = InferSearch,
                                                                        .cost = CostOfSearch,
                                                                        .index_limit = LimitOfSorter,
                                                                        .sample = SampleOfSearch});

}  // namespace xpud::ops
