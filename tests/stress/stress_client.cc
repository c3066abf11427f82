// A client for tools/soak: `stress_client SOCKET SEED [FOLDER]` does what clients do, in an order that the
// seed determines, and checks every result. Clients of one user or claim with the same FOLDER pass memory to
// each other. Exit status: 0, 1 for an error, 2 for a wrong result.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "xpud/tensor.h"

namespace xpud {
namespace {

constexpr size_t kMiB = 1 << 20;

absl::Status Expect(bool holds, const char* what) {
  return holds ? absl::OkStatus() : absl::DataLossError(absl::StrCat("wrong result: ", what));
}

class Client {
 public:
  Client(std::unique_ptr<Session> session, unsigned seed, std::filesystem::path folder)
      : session_(std::move(session)),
        queue_(session_->DefaultQueue(0)),
        random_(seed),
        folder_(std::move(folder)) {}

  absl::Status Run(int rounds) {
    using Step = absl::Status (Client::*)();
    constexpr Step kSteps[] = {&Client::Compute,         &Client::Compute,    &Client::Multiply,
                               &Client::ShareHostMemory, &Client::UseAQueue,  &Client::HoldMuch,
                               &Client::BeRefused,       &Client::PileUpWork, &Client::Pause,
                               &Client::KeepMore,        &Client::CheckKept,  &Client::PassOn,
                               &Client::TakeWhatIsPassed};
    for (int i = 0; i < rounds; ++i) RETURN_IF_ERROR((this->*kSteps[Pick(std::size(kSteps))])());
    return absl::OkStatus();
  }

 private:
  size_t Pick(size_t below) { return std::uniform_int_distribution<size_t>(0, below - 1)(random_); }

  absl::StatusOr<Tensor> Filled(const Queue& queue, float value, int64_t rows, int64_t columns) {
    const std::vector<float> values(static_cast<size_t>(rows * columns), value);
    return Tensor::FromHost(queue, std::span<const float>(values), {rows, columns});
  }
  static absl::Status ExpectAll(const absl::StatusOr<Tensor>& tensor, float value, const char* what) {
    RETURN_IF_ERROR(tensor.status());
    ASSIGN_OR_RETURN(const std::vector<float> found, tensor->ToFloats());
    return Expect(std::all_of(found.begin(), found.end(), [&](float f) { return f == value; }), what);
  }

  absl::Status Compute() {
    const auto n = static_cast<int64_t>(1 + Pick(300));
    ASSIGN_OR_RETURN(const Tensor a, Filled(queue_, 1, n, n));
    ASSIGN_OR_RETURN(const Tensor b, Mul(a, 3.0));
    return ExpectAll(Add(a, b), 4, "sum");
  }
  absl::Status Multiply() {
    const auto n = int64_t{8} << Pick(5);
    ASSIGN_OR_RETURN(const Tensor a, Filled(queue_, 1, n, n));
    ASSIGN_OR_RETURN(const Tensor b, Filled(queue_, 2, n, n));
    return ExpectAll(Matmul(a, b), static_cast<float>(2 * n), "product");
  }
  absl::Status ShareHostMemory() {
    const size_t bytes = (1 + Pick(4)) * kMiB;
    const auto value = static_cast<std::byte>(Pick(256));
    ASSIGN_OR_RETURN(const HostBuffer host, session_->AllocateHost(bytes));
    ASSIGN_OR_RETURN(const Buffer buffer, queue_.Allocate(bytes));
    std::fill(host.bytes().begin(), host.bytes().end(), value);
    RETURN_IF_ERROR(queue_.StartUpload(host.bytes(), buffer.handle(), 0));
    RETURN_IF_ERROR(queue_.Synchronize());
    std::fill(host.bytes().begin(), host.bytes().end(), std::byte{0});
    RETURN_IF_ERROR(queue_.StartDownload(buffer.handle(), 0, host.bytes()));
    RETURN_IF_ERROR(queue_.Synchronize());
    const auto right = [&](std::byte b) { return b == value; };
    return Expect(std::all_of(host.bytes().begin(), host.bytes().end(), right), "host memory");
  }
  absl::Status UseAQueue() {
    ASSIGN_OR_RETURN(const Queue other, session_->CreateQueue(0, Pick(2) == 0 ? 0 : -1));
    ASSIGN_OR_RETURN(const Event before, queue_.Record(true));
    RETURN_IF_ERROR(other.Wait(before));
    {
      ASSIGN_OR_RETURN(const Tensor a, Filled(other, 5, 64, 64));
      RETURN_IF_ERROR(ExpectAll(Mul(a, 2.0), 10, "on another queue"));
    }
    ASSIGN_OR_RETURN(const Event after, other.Record(true));
    RETURN_IF_ERROR(after.Synchronize());
    RETURN_IF_ERROR(after.ElapsedNanoseconds(before).status());
    return session_->DestroyQueue(other);
  }
  absl::Status HoldMuch() {
    ASSIGN_OR_RETURN(const Buffer large, queue_.Allocate((1 + Pick(80)) * kMiB));
    std::vector<Buffer> small;
    for (size_t i = 0; i < 100; ++i) {
      ASSIGN_OR_RETURN(Buffer buffer, queue_.Allocate(1 + Pick(64 << 10)));
      small.push_back(std::move(buffer));
    }
    return Compute();
  }
  // Adds shapes that do not fit: an error at the next synchronisation, and the session continues.
  absl::Status BeRefused() {
    ASSIGN_OR_RETURN(const Tensor a, Filled(queue_, 1, 4, 4));
    ASSIGN_OR_RETURN(const Tensor b, Filled(queue_, 1, 3, 5));
    const TensorRef output = a.ref(), inputs[] = {a.ref(), b.ref(), TensorRef::Immediate(1.0)};
    RETURN_IF_ERROR(
        queue_.Execute({&ops::RowOf("add.Tensor"), ops::DType::kFloat32, {&output, 1}, inputs, {}}));
    return Expect(!queue_.Synchronize().ok(), "adding shapes that do not fit");
  }
  absl::Status PileUpWork() {
    ASSIGN_OR_RETURN(Tensor x, Filled(queue_, 1, 128, 128));
    for (size_t i = 0; i < 50 + Pick(200); ++i) {
      ASSIGN_OR_RETURN(x, Mul(x, 1.0));
    }
    return Pick(2) == 0 ? ExpectAll(x, 1, "a long chain") : absl::OkStatus();
  }
  // Memory whose contents must stay while it is elsewhere, or others have it too.
  struct Kept {
    Buffer buffer;
    size_t bytes = 0;
    std::byte value{};
  };
  absl::Status KeepMore() {
    if (kept_.size() == 3) kept_.erase(kept_.begin() + static_cast<ptrdiff_t>(Pick(3)));
    Kept kept;
    kept.bytes = (1 + Pick(16)) * kMiB;
    kept.value = static_cast<std::byte>(1 + Pick(255));
    ASSIGN_OR_RETURN(kept.buffer, queue_.Allocate(kept.bytes));
    ASSIGN_OR_RETURN(const HostBuffer host, session_->AllocateHost(kept.bytes));
    std::fill(host.bytes().begin(), host.bytes().end(), kept.value);
    RETURN_IF_ERROR(queue_.StartUpload(host.bytes(), kept.buffer.handle(), 0));
    RETURN_IF_ERROR(queue_.Synchronize());
    kept_.push_back(std::move(kept));
    return absl::OkStatus();
  }
  absl::Status Check(const Kept& kept) {
    ASSIGN_OR_RETURN(const HostBuffer host, session_->AllocateHost(kept.bytes));
    RETURN_IF_ERROR(queue_.StartDownload(kept.buffer.handle(), 0, host.bytes()));
    RETURN_IF_ERROR(queue_.Synchronize());
    const auto right = [&](std::byte b) { return b == kept.value; };
    return Expect(std::all_of(host.bytes().begin(), host.bytes().end(), right), "memory that was kept");
  }
  absl::Status CheckKept() {
    for (const Kept& kept : kept_) RETURN_IF_ERROR(Check(kept));
    return absl::OkStatus();
  }

  // What a file in the folder says.
  struct Passed {
    Ticket ticket;
    std::byte value;
  };
  absl::Status PassOn() {
    if (folder_.empty() || kept_.empty()) return absl::OkStatus();
    const Kept& kept = kept_[Pick(kept_.size())];
    ASSIGN_OR_RETURN(const Ticket ticket, session_->Share(kept.buffer));
    const Passed passed = {ticket, kept.value};
    const auto name = absl::StrCat(getpid(), "-", passed_++);
    std::ofstream(folder_ / "new" / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(&passed), sizeof(passed));
    std::filesystem::rename(folder_ / "new" / name, folder_ / name);
    return absl::OkStatus();
  }
  absl::Status TakeWhatIsPassed() {
    if (folder_.empty()) return absl::OkStatus();
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      if (!entry.is_regular_file()) continue;
      const auto mine = folder_ / "new" / absl::StrCat("of-", getpid());
      std::error_code error;
      std::filesystem::rename(entry.path(), mine, error);
      if (error) continue;  // another client was faster
      Passed passed{};
      std::ifstream(mine, std::ios::binary).read(reinterpret_cast<char*>(&passed), sizeof(passed));
      std::filesystem::remove(mine);
      auto taken = session_->Attach(passed.ticket);
      if (absl::IsNotFound(taken.status())) return absl::OkStatus();  // its sender has ended long ago
      RETURN_IF_ERROR(taken.status());
      if (kept_.size() == 3) kept_.pop_back();
      kept_.push_back({*std::move(taken), passed.ticket.bytes, passed.value});
      return Check(kept_.back());
    }
    return absl::OkStatus();
  }

  absl::Status Pause() {
    std::this_thread::sleep_for(std::chrono::milliseconds(Pick(100)));
    return absl::OkStatus();
  }

  const std::unique_ptr<Session> session_;
  const Queue queue_;
  std::mt19937 random_;
  const std::filesystem::path folder_;
  std::vector<Kept> kept_;
  int passed_ = 0;
};

absl::Status Run(const std::string& address, unsigned seed, const std::string& folder) {
  ConnectOptions options;
  options.address = address;
  options.start_daemon = false;
  options.client_name = absl::StrCat("stress ", seed);
  ASSIGN_OR_RETURN(auto session, Session::Connect(options));
  auto client = std::make_unique<Client>(std::move(session), seed, folder);
  const absl::Status status = client->Run(1 + static_cast<int>(seed % 40));
  if (status.ok() && seed % 2 == 1) _exit(0);  // exits without closing the session
  return status;
}

}  // namespace
}  // namespace xpud

int main(int argc, char** argv) {
  if (argc < 3) return 64;
  const auto seed = static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10));
  const absl::Status status = xpud::Run(argv[1], seed, argc > 3 ? argv[3] : "");
  if (!status.ok()) std::fprintf(stderr, "seed %u: %s\n", seed, std::string(status.message()).c_str());
  return status.ok() ? 0 : absl::IsDataLoss(status) ? 2 : 1;
}
