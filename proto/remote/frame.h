// Frames of a remote session. Bulk data passes without a copy: a payload is a list of gRPC slices, which
// protobuf's messages cannot hold. Not thread-safe.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "proto/remote/remote.pb.h"

namespace xpud::remote {

template <typename Head>
struct Frame {
  Head head;
  std::vector<grpc::Slice> payload;
};
using ClientFrame = Frame<v1::ClientHead>;
using ServerFrame = Frame<v1::ServerHead>;

// Reads the concatenation of some slices.
class SliceReader {
 public:
  explicit SliceReader(std::span<const grpc::Slice> slices);
  size_t left() const { return left_; }
  // Reads to.size() bytes, or returns false and reads nothing if fewer are left.
  bool Read(std::span<std::byte> to);
  std::vector<grpc::Slice> Rest() const;

 private:
  std::span<const grpc::Slice> slices_;
  size_t at_ = 0;  // offset in the first slice
  size_t left_ = 0;
};

// Encodes a frame. `head` is the serialized head message.
grpc::ByteBuffer JoinFrame(const std::string& head, std::span<const grpc::Slice> payload);
// Decodes a frame. Returns false if `bytes` are not a frame.
bool SplitFrame(const grpc::ByteBuffer& bytes, std::string& head, std::vector<grpc::Slice>& payload);

template <typename Head>
grpc::ByteBuffer Serialize(const Frame<Head>& frame) {
  return JoinFrame(frame.head.SerializeAsString(), frame.payload);
}
// Decodes a frame and its head. Returns false if `bytes` are not a frame of this protocol.
template <typename Head>
bool Parse(const grpc::ByteBuffer& bytes, Frame<Head>& frame) {
  std::string head;
  return bytes.Valid() && SplitFrame(bytes, head, frame.payload) && frame.head.ParseFromString(head);
}

inline constexpr char kSessionMethod[] = "/xpud.v1.Remote/Session";

}  // namespace xpud::remote
