// Clients and daemons of other versions, and servers that are no daemon, get a clear error soon.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "sdk/client/connect.h"
#include "tests/conformance/isolation/commands.h"
#include "tests/conformance/isolation/isolation_test.h"

namespace xpud::isolation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

using OtherVersions = Isolation;

TEST_F(OtherVersions, OfClientsAreRefusedInWordsUnlessTheyOverlap) {
  const uint16_t oldest = wire::kOldestVersion, newest = wire::kNewestVersion;
  const std::vector<std::pair<uint16_t, uint16_t>> ranges = {
      {0, 0},
      {0, static_cast<uint16_t>(oldest - 1)},
      {static_cast<uint16_t>(newest + 1), static_cast<uint16_t>(newest + 1)},
      {static_cast<uint16_t>(newest + 1), 0xffff},
      {0xffff, 0xffff},
      {0xffff, 0},
      {static_cast<uint16_t>(newest + 1), oldest},
      {0, 0xffff},
      {oldest, 0xffff},
      {0, newest}};
  for (const auto& [from, to] : ranges) {
    const UniqueFd client = ConnectTo(socket());
    const transport::Hello hello = {transport::kHelloMagic, from, to, "of another version"};
    ASSERT_TRUE(transport::SendMessage(client.get(), std::as_bytes(std::span(&hello, 1))).ok());
    transport::Welcome welcome;
    std::array<UniqueFd, 4> fds;
    ASSERT_TRUE(
        transport::ReceiveMessage(client.get(), std::as_writable_bytes(std::span(&welcome, 1)), fds).ok());
    const bool overlaps = from <= newest && to >= oldest && from <= to;
    EXPECT_EQ(welcome.version, overlaps ? std::min(to, newest) : 0) << from << " to " << to;
    if (overlaps) continue;
    EXPECT_FALSE(fds[0].valid());
    EXPECT_THAT(transport::GetText(welcome.text),
                AllOf(HasSubstr("versions " + std::to_string(from) + " to " + std::to_string(to)),
                      HasSubstr((IsRemote() ? "this gateway " : "this daemon ") + std::to_string(oldest) +
                                " to " + std::to_string(newest))));
    char byte;
    EXPECT_EQ(recv(client.get(), &byte, 1, 0), 0) << "it is hung up on";
  }
  ExpectAsBefore();
}

// A process that listens like a daemon and sends any answer to a Hello.
class OtherDaemon {
 public:
  explicit OtherDaemon(const std::function<void(int socket)>& answer) {
    char pattern[] = "/tmp/xpud-other-XXXXXX";
    directory_ = mkdtemp(pattern);
    UniqueFd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path().c_str(), path().size());
    EXPECT_EQ(bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(listener.get(), 8), 0);
    child_ = std::make_unique<Child>([&] {
      const UniqueFd client(accept(listener.get(), nullptr, nullptr));
      transport::Hello hello;
      (void)transport::ReceiveMessage(client.get(), std::as_writable_bytes(std::span(&hello, 1)));
      answer(client.get());
    });
  }
  ~OtherDaemon() {
    child_.reset();
    std::filesystem::remove_all(directory_);
  }
  std::string path() const { return directory_ + "/xpud.sock"; }

 private:
  std::string directory_;
  std::unique_ptr<Child> child_;
};

transport::Welcome WelcomeOf(uint16_t version) {
  transport::Welcome welcome = {};
  welcome.magic = transport::kHelloMagic;
  welcome.version = version;
  welcome.device_count = 1;
  welcome.ring_bytes = transport::kRingBytes;
  welcome.staging_bytes = transport::kStagingBytes;
  welcome.rows = ops::KnownRows();
  return welcome;
}

// Sends it, and opens a device with four memfds of these sizes.
void SendWith(int socket, const transport::Welcome& welcome, size_t ring, size_t completion, size_t staging) {
  (void)transport::SendMessage(socket, std::as_bytes(std::span(&welcome, 1)));
  transport::Request request;
  (void)transport::ReceiveMessage(socket, std::as_writable_bytes(std::span(&request, 1)));
  (void)transport::SendDevice(socket, request.id,
                              {*CreateSealedMemfd("a", ring), *CreateSealedMemfd("b", completion),
                               *CreateSealedMemfd("c", staging), *CreateSealedMemfd("d", 4096)});
  pause();
}

TEST(OtherDaemons, AreToldFromOursInWordsAndSoon) {
  constexpr size_t kRing = transport::kPageBytes + transport::kRingBytes;
  constexpr size_t kCompletion = sizeof(transport::CompletionPage), kStaging = transport::kStagingBytes;
  using Answer = std::function<void(int)>;
  const auto bytes = [](const transport::Welcome& welcome, size_t size) {
    return std::as_bytes(std::span(&welcome, 1)).first(size);
  };
  const std::vector<std::pair<Answer, const char*>> daemons = {
      {[&](int socket) {
         transport::Welcome refusal = WelcomeOf(0);
         transport::SetText(refusal.text, "it speaks protocol versions 2 to 2, this daemon 8 to 9");
         (void)transport::SendMessage(socket, bytes(refusal, sizeof(refusal)));
       },
       "this daemon 8 to 9"},
      {[&](int socket) {
         SendWith(socket, WelcomeOf(wire::kNewestVersion + 1), kRing, kCompletion, kStaging);
       },
       "speaks protocol version"},
      {[&](int socket) {
         SendWith(socket, WelcomeOf(wire::kOldestVersion - 1), kRing, kCompletion, kStaging);
       },
       "speaks protocol version"},
      {[&](int socket) {
         transport::Welcome wrong = WelcomeOf(wire::kNewestVersion);
         wrong.magic = 0x12345678;
         SendWith(socket, wrong, kRing, kCompletion, kStaging);
       },
       "is not an xpud daemon"},
      {[&](int socket) { (void)transport::SendMessage(socket, bytes(WelcomeOf(2), 100)); }, "100"},
      {[&](int socket) {
         (void)transport::SendMessage(socket,
                                      bytes(WelcomeOf(wire::kNewestVersion), sizeof(transport::Welcome)));
       },
       "died"},
      {[&](int socket) { SendWith(socket, WelcomeOf(wire::kNewestVersion), 4096, kCompletion, kStaging); },
       "shared memory holds"},
      {[&](int socket) { SendWith(socket, WelcomeOf(wire::kNewestVersion), kRing, 4096, kStaging); },
       "shared memory holds"},
      {[&](int socket) { SendWith(socket, WelcomeOf(wire::kNewestVersion), kRing, kCompletion, 4096); },
       "shared memory holds"},
      {[](int) {}, "did not answer"},
      {[](int) { pause(); }, "did not answer"}};
  for (size_t i = 0; i < daemons.size(); ++i) {
    const OtherDaemon other(daemons[i].first);
    ConnectOptions options;
    options.address = other.path();
    options.timeout = milliseconds(500);
    const auto start = std::chrono::steady_clock::now();
    const auto session = Session::Connect(options);
    const absl::Status status =
        session.ok() ? (*session)->DefaultQueue(0).Allocate(8).status() : session.status();
    EXPECT_THAT(TextOf(status), HasSubstr(daemons[i].second)) << i;
    EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(3)) << i;
  }
}

}  // namespace
}  // namespace xpud::isolation
