// A buffer of floats of a client, and ops on all of it.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/ops/op_table.h"
#include "xpud/xpud.h"

namespace xpud::e2e {

// Executes `row` on all floats of a buffer, in place; `numbers`: its other inputs.
inline absl::Status ExecuteInPlace(const Queue& queue, const Buffer& buffer, std::string_view row,
                                   std::initializer_list<double> numbers) {
  const int64_t sizes[] = {static_cast<int64_t>(buffer.bytes() / sizeof(float))};
  TensorRef all;
  all.kind = TensorRef::Kind::kTensor;
  all.rank = 1;
  all.buffer = buffer.handle();
  all.sizes = sizes;
  std::vector<TensorRef> inputs = {all};
  for (const double number : numbers) inputs.push_back(TensorRef::Immediate(number));
  return queue.Execute({&ops::RowOf(row), ops::DType::kFloat32, {&all, 1}, inputs, {}});
}

struct Floats {
  Queue queue;
  Buffer buffer;

  int64_t count() const { return static_cast<int64_t>(buffer.bytes() / sizeof(float)); }
  absl::Status Fill(float value) const {
    const std::vector<float> values(static_cast<size_t>(count()), value);
    return queue.Upload(std::as_bytes(std::span(values)), buffer.handle(), 0);
  }
  absl::StatusOr<std::vector<float>> Read() const {
    std::vector<float> values(static_cast<size_t>(count()));
    absl::Status read = queue.Download(buffer.handle(), 0, std::as_writable_bytes(std::span(values)));
    if (!read.ok()) return read;
    return values;
  }
  // Adds `number` in place.
  absl::Status Add(double number) const { return ExecuteInPlace(queue, buffer, "add.Tensor", {number, 1}); }
};

}  // namespace xpud::e2e
