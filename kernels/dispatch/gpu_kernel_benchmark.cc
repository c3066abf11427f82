// Speed of the kernels on an NVIDIA GPU: one line a case, "name dtype microseconds GB/s", counting each
// operand once. kernels/dispatch/gpu_kernel_benchmark.py prints the same for torch. Four sets of operands are
// used in turn, so that none stays in the cache. Arguments: names of cases, or none for all.
#include <cstdio>

#include "kernels/dispatch/kernel_library.h"
#include "kernels/testing/cuda_device.h"
#include "kernels/testing/tensor.h"
#include "proto/base/check.h"
#include "proto/ops/family.h"

namespace xpud::kernels {
namespace {

using ops::DType;
using Sizes = std::vector<int64_t>;

struct Tensor {
  DType type = DType::kFloat32;
  Sizes sizes, strides = {};  // dense if empty
  int64_t counted = -1;       // elements that are read, if not all
};

struct Case {
  std::string name;
  const char* op;
  std::vector<Tensor> outputs, inputs;
  std::vector<ops::Number> attributes = {};
  bool one = false;  // a last input that is the number 1
};

class Bench {
 public:
  Bench() : device_(**CudaDevice::Get()) {
    KernelLibrary::Options options;
    options.target = Target::kNvptx;
    options.processor = device_.processor();
    options.assemble = [this](const std::string& ptx) { return device_.Assemble(ptx); };
    library_ = *KernelLibrary::Create(options);
  }

  void Run(const Case& c) {
    constexpr size_t kSets = 4;
    std::array<LaunchList, kSets> lists;
    uint64_t* const error = static_cast<uint64_t*>(Allocate(8));
    bytes_ = 0;
    for (LaunchList& list : lists) {
      std::vector<Operand> outputs, inputs;
      for (const Tensor& t : c.outputs) outputs.push_back(Make(t));
      for (const Tensor& t : c.inputs) inputs.push_back(Make(t));
      if (c.one) inputs.push_back(One());
      Plan({.row = &ops::RowOf(c.op),
            .compute = c.inputs[0].type,
            .outputs = outputs,
            .inputs = inputs,
            .attributes = c.attributes,
            .error_word = error},
           list);
    }
    const double bytes = static_cast<double>(bytes_) / kSets;
    const double us = 1000.0 * static_cast<double>(device_.Time(lists, bytes > 1e6 ? 40 : 400));
    std::printf("%s %s %.2f %.0f\n", c.name.c_str(), std::string(ops::Info(c.inputs[0].type).name).c_str(),
                us, bytes / us / 1000);
    std::fflush(stdout);
    for (void* const memory : memory_) device_.Free(memory);
    memory_.clear();
  }

 private:
  static Operand One() {
    Operand one;
    one.immediate = true;
    one.number = ops::Number::Real(1);
    return one;
  }

  void* Allocate(size_t bytes) {
    memory_.push_back(device_.Allocate(bytes));
    device_.Fill(memory_.back(), 0, bytes);
    return memory_.back();
  }

  // Floats hold random values; indices are below 30000.
  Operand Make(const Tensor& t) {
    Operand operand;
    operand.dtype = t.type;
    operand.rank = static_cast<uint8_t>(t.sizes.size());
    int64_t step = 1;
    for (size_t d = t.sizes.size(); d-- > 0; step *= t.sizes[d]) {
      operand.sizes[d] = t.sizes[d];
      operand.strides[d] = t.strides.empty() ? step : t.strides[d];
    }
    const size_t count = static_cast<size_t>(operand.numel()), size = ops::SizeOf(t.type);
    std::vector<std::byte> values(count * size);
    for (size_t i = 0; i < count; ++i) {
      state_ = state_ * 6364136223846793005u + 1442695040888963407u;
      const auto r = static_cast<uint32_t>(state_ >> 40);
      const float real = static_cast<float>(r) / 4194304 - 2;
      uint32_t bits;
      std::memcpy(&bits, &real, 4);
      const uint64_t index = r % 30000;
      if (t.type == DType::kBFloat16) bits >>= 16;
      std::memcpy(&values[i * size], ops::IsFloating(t.type) ? static_cast<const void*>(&bits) : &index,
                  size);
    }
    operand.data = Allocate(values.size());
    device_.CopyIn(operand.data, values.data(), values.size());
    bytes_ += t.counted < 0 ? values.size() : static_cast<size_t>(t.counted) * size;
    return operand;
  }

  void Plan(const OpCall& call, LaunchList& list) {
    const auto workspace = [&](size_t bytes) -> absl::StatusOr<void*> { return Allocate(bytes); };
    while (*library_->Plan(call, workspace, list) != Readiness::kReady) library_->WaitForCompiles();
  }

  CudaDevice& device_;
  std::unique_ptr<KernelLibrary> library_;
  std::vector<void*> memory_;
  size_t bytes_ = 0;
  uint64_t state_ = 1;
};

std::vector<Case> CasesOf(DType type, int64_t m, int64_t n) {
  const Tensor matrix{type, {m, n}}, row{type, {1, n}}, column{type, {m, 1}}, vector{type, {n}};
  const Tensor statistics{DType::kFloat32, {m}};
  const Tensor ends{DType::kInt64, {(m * n + ops::kCountBlock - 1) / ops::kCountBlock}};
  const ops::Number zero = ops::Number::Integer(0), one = ops::Number::Integer(1);
  const std::string shape = "_" + std::to_string(m) + "x" + std::to_string(n);
  return {
      {"add" + shape, "add.Tensor", {matrix}, {matrix, matrix}, {}, true},
      {"add_bias" + shape, "add.Tensor", {matrix}, {matrix, row}, {}, true},
      {"gelu" + shape, "gelu", {matrix}, {matrix}},
      {"sum0" + shape, "sum", {row}, {matrix}},
      {"sum1" + shape, "sum", {column}, {matrix}},
      {"softmax0" + shape, "_softmax", {matrix}, {matrix}, {zero}},
      {"softmax1" + shape, "_softmax", {matrix}, {matrix}, {one}},
      {"layer_norm" + shape,
       "native_layer_norm",
       {matrix, statistics, statistics},
       {matrix, vector, vector},
       {ops::Number::Real(1e-5)}},
      {"softmax_backward1" + shape, "_softmax_backward_data", {matrix}, {matrix, matrix}, {one}},
      {"layer_norm_backward" + shape,
       "native_layer_norm_backward",
       {matrix, vector, vector},
       {matrix, matrix, statistics, statistics, vector}},
      {"count" + shape, "xpud::nonzero_ends", {ends}, {matrix}},
      {"copy" + shape, "_copy_from", {matrix}, {matrix}},
      {"transpose" + shape, "_copy_from", {matrix}, {{type, {m, n}, {1, m}}}},
      {"embedding" + shape, "embedding", {matrix}, {{type, {30000, n}, {}, m * n}, {DType::kInt64, {m}}}},
  };
}

// Order and scatter.
std::vector<Case> OrderCases(DType type, int64_t m, int64_t n) {
  const Tensor matrix{type, {m, n}}, positions{DType::kInt64, {m, n}};
  const ops::Number zero = ops::Number::Integer(0), one = ops::Number::Integer(1);
  const std::string shape = "_" + std::to_string(m) + "x" + std::to_string(n);
  return {
      {"sort" + shape, "sort", {matrix, positions}, {matrix}, {one, zero}},
      {"topk50" + shape,
       "sort",
       {{type, {m, 50}}, {DType::kInt64, {m, 50}}},
       {matrix},
       {one, one, ops::Number::Integer(50)}},
  };
}

std::vector<Case> ScatterCases(DType type, int64_t rows, int64_t m, int64_t n) {
  const Tensor out{type, {rows, n}, {}, m * n}, matrix{type, {m, n}}, index{DType::kInt64, {m, n}, {1, 0}, m};
  const std::string shape = "_" + std::to_string(m) + "x" + std::to_string(n);
  return {{"index_add" + shape,
           "xpud::scatter_add_any_order",
           {out},
           {index, matrix},
           {ops::Number::Integer(0)}}};
}

int Main(int argc, char** argv) {
  Bench bench;
  const auto run = [&](const std::vector<Case>& cases) {
    for (const Case& c : cases) {
      bool wanted = argc == 1;
      for (int i = 1; i < argc; ++i) wanted |= c.name.find(argv[i]) != std::string::npos;
      if (wanted) bench.Run(c);
    }
  };
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{4096, 4096}, {32, 384}, {1024, 384}}) {
    for (const DType type : {DType::kFloat32, DType::kBFloat16}) {
      run(CasesOf(type, m, n));
    }
  }
  for (const DType type : {DType::kFloat32, DType::kBFloat16, DType::kInt64}) {
    for (const auto& [m, n] : {std::pair<int64_t, int64_t>{1, 4096},
                               {1, 16384},
                               {1, 65536},
                               {1, 1'000'000},
                               {1, 10'000'000},
                               {32, 50'000},
                               {2000, 3000}})
      run(OrderCases(type, m, n));
  }
  run(ScatterCases(DType::kFloat32, 30'000, 200'000, 64));
  run(ScatterCases(DType::kFloat32, 30'000, 1'000'000, 1));
  return 0;
}

}  // namespace
}  // namespace xpud::kernels

int main(int argc, char** argv) { return xpud::kernels::Main(argc, argv); }
