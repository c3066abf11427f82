// Frames of a remote session as proto/remote describes them. Bulk data passes without a copy: a payload is
// slices of memory, which protobuf's own messages cannot hold. A frame belongs to one thread.
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

// The bytes of some slices, one after the other.
class SliceReader {
 public:
  explicit SliceReader(std::span<const grpc::Slice> slices);
  size_t left() const { return left_; }
  // All or nothing; false: fewer are left.
  bool Read(std::span<std::byte> to);
  std::vector<grpc::Slice> Rest() const;

 private:
  std::span<const grpc::Slice> slices_;
  size_t at_ = 0;  // of the first of them
  size_t left_ = 0;
};

// A frame's two fields; what a head serializes to is the caller's business.
grpc::ByteBuffer JoinFrame(const std::string& head, std::span<const grpc::Slice> payload);
// False: these are not a frame.
bool SplitFrame(const grpc::ByteBuffer& bytes, std::string& head, std::vector<grpc::Slice>& payload);

template <typename Head>
grpc::ByteBuffer Serialize(const Frame<Head>& frame) {
  return JoinFrame(frame.head.SerializeAsString(), frame.payload);
}
// False: these are not a frame of this protocol.
template <typename Head>
bool Parse(const grpc::ByteBuffer& bytes, Frame<Head>& frame) {
  std::string head;
  return bytes.Valid() && SplitFrame(bytes, head, frame.payload) && frame.head.ParseFromString(head);
}

inline constexpr char kSessionMethod[] = "/xpud.v1.Remote/Session";

}  // namespace xpud::remote
