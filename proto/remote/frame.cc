#include "proto/remote/frame.h"

#include <algorithm>
#include <cstring>

namespace xpud::remote {
namespace {

constexpr size_t kMaxHeadBytes = 1 << 20;
// Protobuf's tags of fields 1 and 2, both of type bytes.
constexpr char kHeadTag = 1 << 3 | 2, kPayloadTag = 2 << 3 | 2;

void AddVarint(uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

bool ReadVarint(SliceReader& reader, uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    std::byte byte;
    if (!reader.Read({&byte, 1})) return false;
    value |= (std::to_integer<uint64_t>(byte) & 0x7f) << shift;
    if (std::to_integer<int>(byte) < 0x80) return true;
  }
  return false;
}

// Reads the tag and the length of a field.
bool ReadField(SliceReader& reader, char tag, uint64_t& bytes) {
  char found;
  return reader.Read(std::as_writable_bytes(std::span(&found, 1))) && found == tag &&
         ReadVarint(reader, bytes) && bytes <= reader.left();
}

}  // namespace

SliceReader::SliceReader(std::span<const grpc::Slice> slices) : slices_(slices) {
  for (const grpc::Slice& slice : slices) left_ += slice.size();
}

bool SliceReader::Read(std::span<std::byte> to) {
  if (to.size() > left_) return false;
  left_ -= to.size();
  while (!to.empty()) {
    const size_t bytes = std::min(to.size(), slices_.front().size() - at_);
    std::memcpy(to.data(), slices_.front().begin() + at_, bytes);
    to = to.subspan(bytes);
    at_ += bytes;
    if (at_ < slices_.front().size()) continue;
    slices_ = slices_.subspan(1);
    at_ = 0;
  }
  return true;
}

std::vector<grpc::Slice> SliceReader::Rest() const {
  std::vector<grpc::Slice> rest(slices_.begin(), slices_.end());
  if (at_ != 0) rest.front() = rest.front().sub(at_, rest.front().size());
  return rest;
}

grpc::ByteBuffer JoinFrame(const std::string& head, std::span<const grpc::Slice> payload) {
  std::string start(1, kHeadTag);
  AddVarint(head.size(), start);
  start += head;
  start += kPayloadTag;
  AddVarint(SliceReader(payload).left(), start);
  std::vector<grpc::Slice> all = {grpc::Slice(start)};
  all.insert(all.end(), payload.begin(), payload.end());
  return {all.data(), all.size()};
}

bool SplitFrame(const grpc::ByteBuffer& bytes, std::string& head, std::vector<grpc::Slice>& payload) {
  std::vector<grpc::Slice> slices;
  if (!bytes.Dump(&slices).ok()) return false;
  SliceReader reader(slices);
  uint64_t size = 0;
  if (!ReadField(reader, kHeadTag, size) || size > kMaxHeadBytes) return false;
  head.resize(size);
  if (!reader.Read(std::as_writable_bytes(std::span(head)))) return false;
  // Protobuf leaves out an empty field.
  if (reader.left() != 0 && (!ReadField(reader, kPayloadTag, size) || size != reader.left())) return false;
  payload = reader.Rest();
  return true;
}

}  // namespace xpud::remote
