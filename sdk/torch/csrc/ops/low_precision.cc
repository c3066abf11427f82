// Products of numbers with few bits: integers, int8 and int4 weights, float8. Operands are widened to a type
// in which the products are exact, and the floating products multiply them.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <array>

#include "sdk/torch/csrc/call/command.h"
#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/engines/float8.h"
#include "sdk/torch/csrc/engines/integer_product.h"
#include "sdk/torch/csrc/fallback/fallback.h"
#include "sdk/torch/csrc/runtime/storage.h"

namespace xpud::shim {
namespace {

using at::Tensor;

// ---- integers ----

Tensor IntMm(const Tensor& a, const Tensor& b) {
  TORCH_CHECK(a.dim() == 2, "int_mm_out_cpu: Expected self to be of dimension 2 but got ", a.dim());
  TORCH_CHECK(b.dim() == 2, "int_mm_out_cpu: Expected mat2 to be of dimension 2 but got ", b.dim());
  TORCH_CHECK(a.size(1) == b.size(0), "int_mm_out_cpu: self.size(1) needs to match mat2.size(0) but got ",
              a.size(1), " and ", b.size(0));
  TORCH_CHECK(a.scalar_type() == at::kChar || a.scalar_type() == at::kByte,
              "int_mm_out_cpu: Expected self dtype to be int8 or uint8 but got ", a.dtype());
  TORCH_CHECK(b.scalar_type() == at::kChar, "int_mm_out_cpu: Expected mat2 dtype to be of type int8 but got ",
              b.dtype());
  CheckSameDevice(a.device(), b.device());
  const std::array<int64_t, 2> sizes = {a.size(0), b.size(1)};
  if (a.size(1) == 0 || sizes[0] == 0 || sizes[1] == 0) return at::zeros(sizes, a.options().dtype(at::kInt));
  return ByteProduct(a, b);
}

// ---- int8 weights ----

// self [M, K], weight [N, K] of int8, a scale for each of its rows: self weight' scales, of self's dtype.
Tensor Int8Weight(const Tensor& self, const Tensor& weight, const Tensor& scales) {
  static constexpr const char* kName = "_weight_int8pack_mm_cpu";
  const at::ScalarType type = self.scalar_type();
  TORCH_CHECK(type == at::kBFloat16 || type == at::kHalf || type == at::kFloat, kName,
              " : expect A to be either 32-bit or 16-bit float tensor.");
  TORCH_CHECK(self.dim() == 2, kName, " : expect A to be 2D tensor.");
  TORCH_CHECK(self.stride(1) == 1, kName, " : A must be contiguous on the last dimension.");
  TORCH_CHECK(weight.scalar_type() == at::kChar, kName, " : expect B to be int8 tensor.");
  TORCH_CHECK(weight.is_contiguous(), kName, " : expect B to be contiguous.");
  TORCH_CHECK(weight.dim() == 2 && weight.size(1) == self.size(1), kName,
              " : expect B.size(1) == ", self.size(1));
  TORCH_CHECK(scales.dim() == 1 && scales.size(0) == weight.size(0), kName,
              " : expect scales to be 1d tensor with size ", weight.size(0));
  return at::mm(self, weight.to(type).t()).mul_(scales);
}

// ---- int4 weights ----

constexpr int kNibbleZero = 8;  // the code of 0

// weight: uint8 [N, K / 2], the even column in the upper four bits, as CUDA's operator takes it. The result
// has the shape of CUDA's, and our layout: the bytes as they were. It is for Int4Weight only.
Tensor PackInt4(const Tensor& weight, int64_t inner_k_tiles) {
  TORCH_CHECK(weight.dim() == 2 && weight.scalar_type() == at::kByte,
              "_convert_weight_to_int4pack: expect a 2D tensor of uint8");
  TORCH_CHECK(inner_k_tiles == 2 || inner_k_tiles == 4 || inner_k_tiles == 8,
              "_convert_weight_to_int4pack: innerKTiles may be 2, 4 or 8, and is ", inner_k_tiles);
  const int64_t rows = weight.size(0), columns = weight.size(1) * 2, tile = inner_k_tiles * 16;
  TORCH_CHECK(rows % 8 == 0 && columns % tile == 0, "_convert_weight_to_int4pack: ", rows, " x ", columns,
              " elements are not a multiple of 8 x ", tile);
  return weight.clone(at::MemoryFormat::Contiguous)
      .view(at::kInt)
      .view({rows / 8, columns / tile, 32, inner_k_tiles / 2});
}

// self [M, K] of bf16, packed from PackInt4, scales and zeros [K / group, N, 2] of bf16: element n, k of the
// weight is (code - 8) scale + zero, with those of its group.
Tensor Int4Weight(const Tensor& self, const Tensor& packed, int64_t group, const Tensor& scales_and_zeros) {
  TORCH_CHECK(self.scalar_type() == at::kBFloat16 && self.dim() == 2,
              "_weight_int4pack_mm: expect a 2D tensor of bfloat16");
  TORCH_CHECK(
      packed.scalar_type() == at::kInt && packed.dim() == 4 && packed.size(2) == 32 && packed.is_contiguous(),
      "_weight_int4pack_mm: expect the result of _convert_weight_to_int4pack");
  TORCH_CHECK(group == 32 || group == 64 || group == 128 || group == 256,
              "_weight_int4pack_mm: qGroupSize may be 32, 64, 128 or 256, and is ", group);
  const int64_t rows = packed.size(0) * 8, columns = packed.size(1) * packed.size(3) * 32;
  TORCH_CHECK(self.size(1) == columns, "_weight_int4pack_mm: self has ", self.size(1),
              " columns, and the weight ", columns);
  TORCH_CHECK(scales_and_zeros.scalar_type() == at::kBFloat16 && columns % group == 0 &&
                  scales_and_zeros.sizes() == c10::IntArrayRef({columns / group, rows, 2}),
              "_weight_int4pack_mm: expect scales and zeros of bfloat16 and size [", columns / group, ", ",
              rows, ", 2], got ", scales_and_zeros.sizes());
  const Tensor bytes = packed.view(at::kByte).view({rows, columns / 2});
  const Tensor codes = at::stack({at::bitwise_right_shift(bytes, 4), bytes.bitwise_and(15)}, 2);
  const Tensor of_groups = scales_and_zeros.transpose(0, 1).to(at::kFloat).unsqueeze(2);  // [N, groups, 1, 2]
  const Tensor weight = codes.view({rows, columns / group, group})
                            .to(at::kFloat)
                            .sub_(kNibbleZero)
                            .mul_(of_groups.select(3, 0))
                            .add_(of_groups.select(3, 1))
                            .to(at::kBFloat16)
                            .view({rows, columns});
  return at::mm(self, weight.t());
}

// ---- float8 ----

void CheckScale(const Tensor& scale, c10::IntArrayRef by_line, const char* name) {
  TORCH_CHECK(scale.scalar_type() == at::kFloat, "_scaled_mm: ", name, " must be a float tensor, and is ",
              scale.scalar_type());
  TORCH_CHECK(scale.numel() == 1 || scale.sizes() == by_line, "_scaled_mm: ", name,
              " must have one element or size ", by_line, ", and has size ", scale.sizes());
}

constexpr c10::IntArrayRef kOne;  // the size of one element

// a [M, K] and b [K, N] of float8, scales for the whole matrix, or for each row of a and column of b:
// (a b) scale_a scale_b + bias, rounded once. A float8 result is divided by scale_result first.
Tensor ScaledMm(const Tensor& a, const Tensor& b, const Tensor& scale_a, const Tensor& scale_b,
                const OptionalTensor& bias, const OptionalTensor& scale_result,
                std::optional<at::ScalarType> out_type, bool /*use_fast_accum*/) {
  TORCH_CHECK(a.dim() == 2, "mat1 must be a matrix");
  TORCH_CHECK(b.dim() == 2, "mat2 must be a matrix");
  TORCH_CHECK(a.size(1) == b.size(0), "mat_a and mat_b shapes cannot be multiplied (", a.size(0), "x",
              a.size(1), " and ", b.size(0), "x", b.size(1), ")");
  if (!IsFloat8(a.scalar_type()) || !IsFloat8(b.scalar_type())) {
    return FallbackOf<at::_ops::_scaled_mm>::Call(a, b, scale_a, scale_b, bias, scale_result, out_type,
                                                  /*use_fast_accum=*/false);
  }
  CheckSameDevice(a.device(), b.device());
  CheckScale(scale_a, {a.size(0), 1}, "scale_a");
  CheckScale(scale_b, {1, b.size(1)}, "scale_b");
  TORCH_CHECK(!IsGiven(bias) || bias->numel() == b.size(1), "Bias must be size ", b.size(1), " but got ",
              IsGiven(bias) ? bias->numel() : 0);
  const at::ScalarType type = out_type.value_or(a.scalar_type());
  Tensor product = at::mm(FromFloat8(a), FromFloat8(b.t()).t());
  product.mul_(scale_a.numel() == 1 ? scale_a.view(kOne) : scale_a)
      .mul_(scale_b.numel() == 1 ? scale_b.view(kOne) : scale_b);
  if (IsGiven(bias)) product.add_(bias->view({-1}));
  if (IsFloat8(type) && IsGiven(scale_result)) product.div_(scale_result->view(kOne));
  return product.to(type);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_int_mm", XPUD_FN(IntMm));
  m.impl("_weight_int8pack_mm", XPUD_FN(Int8Weight));
  m.impl("_convert_weight_to_int4pack", XPUD_FN(PackInt4));
  m.impl("_weight_int4pack_mm", XPUD_FN(Int4Weight));
  m.impl("_scaled_mm", XPUD_FN(ScaledMm));
}

}  // namespace
}  // namespace xpud::shim
