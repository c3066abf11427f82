// Bytes of a gateway's clients, and its token file. The first byte selects: a frame, in slices as a network
// may deliver it, or tokens.
#include <algorithm>
#include <string>
#include <vector>

#include "daemon/gateway/admission.h"
#include "proto/base/check.h"
#include "proto/remote/frame.h"
#include "proto/remote/remote.pb.h"
#include "tests/fuzz/bytes.h"

namespace xpud::fuzz {
namespace {

std::string Join(std::span<const grpc::Slice> slices) {
  std::string text(remote::SliceReader(slices).left(), '\0');
  XPUD_CHECK(remote::SliceReader(slices).Read(std::as_writable_bytes(std::span(text))));
  return text;
}

grpc::ByteBuffer Cut(std::string_view text, size_t piece) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < text.size(); at += piece)
    slices.emplace_back(text.data() + at, std::min(piece, text.size() - at));
  return {slices.data(), slices.size()};
}

// A frame must decode as protobuf decodes it, and encode to the same bytes.
void CheckFrame(std::string_view text, size_t piece) {
  std::string head;
  std::vector<grpc::Slice> payload;
  const grpc::ByteBuffer bytes = Cut(text, piece);
  if (text.empty() || !remote::SplitFrame(bytes, head, payload)) return;
  v1::ClientFrame frame;
  if (!frame.ParseFromArray(text.data(), static_cast<int>(text.size())))
    return;  // the head is not a valid message
  XPUD_CHECK(Join(payload) == frame.payload());
  std::string head_again;
  std::vector<grpc::Slice> payload_again;
  XPUD_CHECK(remote::SplitFrame(remote::JoinFrame(head, payload), head_again, payload_again));
  XPUD_CHECK(head_again == head && Join(payload_again) == Join(payload));
}

// Tokens must be distinct, not empty, and without blanks.
void CheckTokens(std::string_view text) {
  const auto tokens = remote::ParseTokens(text);
  if (!tokens.ok()) return;
  XPUD_CHECK(!tokens->empty());
  for (const remote::Token& token : *tokens) {
    XPUD_CHECK(!token.text.empty() && token.text.find_first_of(" \t\r\n") == std::string::npos);
    XPUD_CHECK(std::count_if(tokens->begin(), tokens->end(),
                             [&](const remote::Token& other) { return other.text == token.text; }) == 1);
    XPUD_CHECK(token.tenant.find('/') == std::string::npos);
  }
}

}  // namespace
}  // namespace xpud::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  xpud::fuzz::Bytes bytes(data, size);
  const auto choice = bytes.Take<uint8_t>();
  if (choice == 0)
    xpud::fuzz::CheckTokens(bytes.text());
  else
    xpud::fuzz::CheckFrame(bytes.text(), choice);
  return 0;
}
