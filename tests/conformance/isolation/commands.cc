#include "tests/conformance/isolation/commands.h"

#include "proto/ops/family.h"

namespace xpud::isolation {
namespace {

class Writer {
 public:
  template <typename T>
  void Put(const T& value) {
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
  }
  void Put(const std::vector<uint64_t>& values) {
    for (const uint64_t value : values) Put(value);
  }
  std::vector<std::byte> Take() {
    bytes_.resize(wire::PadTo8(bytes_.size()));
    const auto size = static_cast<uint32_t>(bytes_.size());
    std::memcpy(bytes_.data(), &size, sizeof(size));
    return std::move(bytes_);
  }

 private:
  std::vector<std::byte> bytes_;
};

void Put(const View& view, Writer& out) {
  wire::OperandHeader header = {view.kind, static_cast<uint8_t>(view.dtype), 0, 0, 0};
  if (view.kind == wire::OperandKind::kTensor) {
    header.rank = static_cast<uint8_t>(view.sizes.size());
    header.flags = static_cast<uint8_t>(wire::kWide | (view.strides.empty() ? 0 : wire::kStrided));
    header.buffer = view.buffer.id;
  }
  out.Put(header);
  if (view.kind == wire::OperandKind::kAbsent) return;
  if (view.kind != wire::OperandKind::kTensor) return out.Put(view.number.integer);
  out.Put(view.buffer.generation);
  out.Put(uint32_t{0});
  out.Put(view.offset);
  out.Put(view.sizes);
  out.Put(view.strides);
}

}  // namespace

std::vector<std::byte> DefineKernel(uint32_t kernel, std::string_view bytes) {
  const auto data = std::as_bytes(std::span(bytes));
  std::vector<std::byte> command(*wire::DefineKernelBytes(data, "kernel"));
  wire::EncodeDefineKernel(kernel, data, "kernel", /*queue=*/0, command.data());
  return command;
}

std::vector<std::byte> PrepareKernel(uint32_t kernel, const std::vector<int64_t>& sizes,
                                     const std::vector<int64_t>& elements) {
  std::vector<std::byte> command(*wire::PrepareKernelBytes(sizes, elements));
  wire::EncodePrepareKernel(kernel, sizes, elements, /*queue=*/0, command.data());
  return command;
}

std::vector<std::byte> UploadInline(wire::Handle buffer, uint64_t offset, std::span<const std::byte> bytes) {
  Writer out;
  out.Put(wire::UploadInlineCommand{HeaderOf<wire::UploadInlineCommand>(wire::CommandKind::kUploadInline),
                                    buffer, offset, static_cast<uint32_t>(bytes.size()), 0});
  for (const std::byte byte : bytes) out.Put(byte);
  return out.Take();
}

std::vector<std::byte> Execute(const ops::Row& row, ops::DType compute, std::span<const View> outputs,
                               std::span<const View> inputs, std::span<const ops::Number> attributes,
                               std::span<const uint16_t> lists) {
  Writer out;
  out.Put(wire::ExecuteCommand{HeaderOf<wire::ExecuteCommand>(wire::CommandKind::kExecute), row.number,
                               static_cast<uint8_t>(compute), 0, static_cast<uint16_t>(outputs.size()),
                               static_cast<uint16_t>(inputs.size())});
  for (size_t i = 0; i < (lists.size() + 3) / 4 * 4; ++i) out.Put(i < lists.size() ? lists[i] : uint16_t{0});
  for (const auto views : {outputs, inputs}) {
    for (const View& view : views) Put(view, out);
  }
  for (const ops::Number& number : attributes) out.Put(number.integer);
  const auto schema = ops::DescriptorOf(row).attributes;
  for (size_t i = attributes.size(); i < schema.size(); ++i)
    out.Put(ops::IsReal(schema[i].type) ? ops::Number::Real(schema[i].value).integer
                                        : static_cast<int64_t>(schema[i].value));
  return out.Take();
}

}  // namespace xpud::isolation
