// Makes and deletes claims, one after the other; a client works under each hundredth.
//
// clang-format off
//   claim_churn FIRST COUNT   against a running daemon ($XPUD_ADDRESS); prints the seconds that it took
// clang-format on
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "sdk/control/client.h"
#include "tests/bench/rows.h"
#include "xpud/xpud.h"

namespace xpud::bench {
namespace {

constexpr int kClaimsPerClient = 100;

void Work(const std::string& socket) {
  ConnectOptions options;
  options.address = socket;
  options.client_name = "claim_churn";
  options.start_daemon = false;
  const auto session = Take(Session::Connect(options));
  const Queue queue = session->DefaultQueue(0);
  const Buffer buffer = Take(queue.Allocate(1 << 20));
  const std::byte bytes[64] = {};
  Need(queue.Upload(bytes, buffer.handle(), 0));
  Need(queue.Synchronize());
}

int Main(int first, int count) {
  auto client = Take(control::Client::Connect(std::getenv("XPUD_ADDRESS")));
  const int64_t began = NowNs();
  for (int i = first; i < first + count; ++i) {
    v1::Claim claim;
    claim.set_key(absl::StrCat("pod-", i));
    claim.set_memory_least_bytes(1 << 20);
    (*claim.mutable_labels())["pod"] = claim.key();
    const v1::Claim made = Take(client.CreateClaim(claim));
    if (i % kClaimsPerClient == 0) Work(made.door() + "/xpud.sock");
    (void)Take(client.DeleteClaim(claim.key()));
  }
  std::printf("%.6f\n", static_cast<double>(NowNs() - began) / 1e9);
  return 0;
}

}  // namespace
}  // namespace xpud::bench

int main(int argc, char** argv) {
  int first = 0;
  int count = 0;
  if (argc != 3 || !absl::SimpleAtoi(argv[1], &first) || !absl::SimpleAtoi(argv[2], &count)) return 2;
  return xpud::bench::Main(first, count);
}
