// The daemon's texts for a client contain neither its own addresses and paths, nor anything of other clients.
#include <fcntl.h>
#include <sys/mman.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "proto/transport/host_memory.h"
#include "sdk/client/connect.h"
#include "tests/conformance/isolation/isolation_test.h"
#include "tests/conformance/isolation/op_calls.h"

namespace xpud::isolation {
namespace {

constexpr char kOtherName[] = "payroll-wednesday";

// The mapped ranges of the daemon's process.
class AddressSpace {
 public:
  explicit AddressSpace(pid_t pid) {
    std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
    for (std::string line; std::getline(maps, line);) {
      uint64_t begin = 0, end = 0;
      char dash;
      if (std::istringstream(line) >> std::hex >> begin >> dash >> end) ranges_.emplace_back(begin, end);
    }
  }
  bool Has(uint64_t address) const {
    const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), std::pair(address, ~uint64_t{0}));
    return after != ranges_.begin() && address < std::prev(after)->second;
  }
  size_t size() const { return ranges_.size(); }

 private:
  std::vector<std::pair<uint64_t, uint64_t>> ranges_;  // begin, end; sorted
};

class Texts : public Isolation {
 protected:
  void Heard(const std::string& text) {
    if (!text.empty()) texts_.insert(text);
  }
  void Heard(const absl::Status& status) { Heard(TextOf(status)); }

  std::unique_ptr<HostileSession> Open() {
    auto session = std::make_unique<HostileSession>(socket());
    PutOperands(*session);
    Heard(session->Settle());
    Heard(transport::GetText(session->welcome().text));
    return session;
  }
  // Sends a command and checks the reaction.
  void Provoke(const std::vector<std::byte>& command) {
    if (session_ == nullptr || session_->closed()) session_ = Open();
    session_->Put(command);
    Heard(session_->Settle());
    // No word of the page is an address either, neither now nor earlier.
    const auto* const words = reinterpret_cast<const uint64_t*>(&session_->completion());
    for (size_t i = 0; i < sizeof(transport::CompletionPage) / 8; ++i)
      if (space_.Has(words[i])) ADD_FAILURE() << "word " << i << " of the completion page is an address";
  }
  void ExpectHarmless(const std::string& text) const {
    static const std::regex numbers("(0[xX])?[0-9a-fA-F]{5,}");
    for (std::sregex_iterator at(text.begin(), text.end(), numbers), end; at != end; ++at) {
      for (const int base : {10, 16}) {
        const uint64_t value = std::strtoull(at->str().c_str(), nullptr, base);
        EXPECT_FALSE(space_.Has(value)) << at->str() << " is an address of the daemon's: " << text;
      }
    }
    for (const std::string& secret :
         {std::string(kOtherName), daemon_.directory(), std::to_string(other_.pid()),
          std::to_string(daemon_.pid()), std::string("/tmp"), std::string("/root"), std::string("/home"),
          std::string("/proc"), std::string(".cc:"), std::string("/build"), std::string("uid")})
      EXPECT_EQ(text.find(secret), std::string::npos) << secret << " in: " << text;
  }

  Innocent other_{socket(), Innocent::kSmall, kOtherName};
  AddressSpace space_{daemon_.pid()};
  std::unique_ptr<HostileSession> session_;
  std::set<std::string> texts_;
};

// Ops with wrong names, types or shapes.
std::vector<std::vector<std::byte>> WrongOps() {
  std::vector<std::vector<std::byte>> wrong;
  for (const ops::Row& row : ops::kRows) {
    const Call right = RightCall(row);
    for (size_t i = 0; i < right.outputs.size() + right.inputs.size(); ++i) {
      for (int how = 0; how < 6; ++how) {
        Call call = right;
        View& view = *call.operands()[i];
        if (how == 0) view.buffer = {999, 1};
        if (how == 1) view.offset = uint64_t{1} << 47;
        if (how == 2) view.sizes.push_back(3);
        if (how == 3)
          view.sizes.assign(ops::kMaxRank, uint64_t{1} << 40), view.strides.assign(ops::kMaxRank, 0);
        if (how == 4 && !ops::Contains(row.dtypes, ops::DType::kBool)) view.dtype = ops::DType::kBool;
        if (how == 5) view = View{};
        wrong.push_back(call.bytes());
      }
    }
    for (int type = 0; type < ops::kNumDTypes; ++type) {
      Call call = right;
      call.compute = static_cast<ops::DType>(type);
      if (!ops::Contains(row.dtypes, call.compute)) wrong.push_back(call.bytes());
    }
    wrong.push_back(Execute(row, right.compute, right.outputs, right.inputs,
                            std::vector<ops::Number>(8, ops::Number::Integer(int64_t{1} << 62))));
  }
  return wrong;
}

template <typename Command>
std::vector<std::byte> BytesOf(const Command& command) {
  const auto bytes = std::as_bytes(std::span(&command, 1));
  return {bytes.begin(), bytes.end()};
}

std::vector<std::vector<std::byte>> WrongCommands() {
  std::vector<std::vector<std::byte>> wrong = {BytesOf(Free({7, 7})),
                                               BytesOf(Allocate({5000, 1}, 8)),
                                               BytesOf(Allocate({12, 1}, uint64_t{1} << 60)),
                                               BytesOf(Upload({1, 1}, 0, {~0ull, 0, 0}, 8)),
                                               BytesOf(Upload({1, 1}, ~0ull, {0, 0, 0}, 8)),
                                               BytesOf(Download({1, 1}, 0, {0, 9, 0}, 8)),
                                               BytesOf(Copy({1, 1}, 0, {1, 1}, 8, 64)),
                                               BytesOf(Copy({77, 1}, 0, {1, 1}, 8, 64)),
                                               BytesOf(CreateQueue(0)),
                                               BytesOf(Wait(0, 1, 0, 99)),
                                               BytesOf(DestroyQueue(0)),
                                               BytesOf(Timestamp(99'999)),
                                               BytesOf(Wait(63, 0)),
                                               BytesOf(Wait(0, ~0ull)),
                                               BytesOf(ClearError(77)),
                                               BytesOf(ReleaseMemory(3)),
                                               BytesOf(Reserve(~0ull)),
                                               BytesOf(Nop(33))};
  for (const uint32_t bytes : {1u, uint32_t{wire::kMaxRangeName} + 1, ~0u})  // of a name that does not follow
    wrong.push_back(BytesOf(wire::RangeCommand{{16, wire::CommandKind::kRange, 0, 0}, bytes, 0}));
  for (const uint32_t id : {0u, 1u, 2u, 5000u}) {
    wrong.push_back(DefineKernel(id, "no kernel"));
    wrong.push_back(PrepareKernel(id, {-1}, {0, 1}));
    wrong.push_back(BytesOf(ForgetKernel(id)));
  }
  for (int kind = static_cast<int>(wire::CommandKind::kCopyFrom) + 1; kind < 26; ++kind)
    wrong.push_back(BytesOf(wire::NopCommand{{8, static_cast<wire::CommandKind>(kind), 0, 0}}));
  std::vector<std::byte> cut = RightCall(ops::RowOf("add.Tensor")).bytes();
  for (uint32_t size = 16; size < cut.size(); size += 8) {
    std::vector<std::byte> shorter(cut.begin(), cut.begin() + size);
    std::memcpy(shorter.data(), &size, sizeof(size));
    wrong.push_back(shorter);
  }
  return wrong;
}

TEST_F(Texts, OfErrorsAndRefusalsNameNeitherAddressesNorOthers) {
  ASSERT_GT(space_.size(), 50u);
  for (const auto& command : WrongOps()) Provoke(command);
  for (const auto& command : WrongCommands()) Provoke(command);
  for (const unsigned seals : {0u, 0u + F_SEAL_SHRINK + F_SEAL_GROW}) {
    auto session = Open();
    const UniqueFd hollow(memfd_create("hollow", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(hollow.get(), 1 << 20), 0);
    ASSERT_EQ(fcntl(hollow.get(), F_ADD_SEALS, seals), 0);
    const transport::Request message = {transport::RequestKind::kShareMemory, 1, 1 << 20, 1};
    const int fd = hollow.get();
    ASSERT_TRUE(
        transport::SendMessage(session->socket(), std::as_bytes(std::span(&message, 1)), {&fd, 1}).ok());
    transport::Answer answer;
    ASSERT_TRUE(
        transport::ReceiveMessage(session->socket(), std::as_writable_bytes(std::span(&answer, 1))).ok());
    Heard(std::string(answer.text));
    ASSERT_TRUE(transport::SendMessage(session->socket(), std::vector<std::byte>(5)).ok());
    Heard(session->Fate());
  }
  const UniqueFd future = ConnectTo(socket());
  const transport::Hello hello = {transport::kHelloMagic, 900, 901, {}};
  ASSERT_TRUE(transport::SendMessage(future.get(), std::as_bytes(std::span(&hello, 1))).ok());
  transport::Welcome welcome;
  ASSERT_TRUE(transport::ReceiveMessage(future.get(), std::as_writable_bytes(std::span(&welcome, 1))).ok());
  Heard(transport::GetText(welcome.text));
  std::printf("[ figures  ] %zu different texts\n", texts_.size());
  EXPECT_GT(texts_.size(), 500u);
  for (const std::string& text : texts_) ExpectHarmless(text);
  other_.ExpectUnharmed();
}

}  // namespace
}  // namespace xpud::isolation
