// delay_line NAME NAME DELAY_US LOSS_PERCENT: a network between two TUN devices, which it creates. Each
// packet arrives at the other device after the delay or, at random, not at all. Like netem, for kernels
// without it. Prints "ready" when the devices exist; ends with its standard input. Needs root.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMaxPacketBytes = 1 << 16;
constexpr size_t kMaxQueued = 20'000;  // packets; further ones are dropped, as in a router

int OpenTun(const char* name) {
  const int tun = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  ifreq request = {};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  if (tun < 0 || ioctl(tun, TUNSETIFF, &request) != 0) {
    std::perror(name);
    std::exit(1);
  }
  return tun;
}

class Direction {
 public:
  Direction(int from, int to, Clock::duration delay, double loss, unsigned seed)
      : from_(from), to_(to), delay_(delay), loss_(loss), seed_(seed) {}

  void Run() {
    prctl(PR_SET_TIMERSLACK, 1);
    std::deque<std::pair<Clock::time_point, std::vector<char>>> under_way;
    std::minstd_rand random(seed_);
    std::uniform_real_distribution<double> chance(0, 1);
    std::vector<char> packet(kMaxPacketBytes);
    while (true) {
      Await(under_way.empty() ? Clock::time_point::max() : under_way.front().first);
      for (ssize_t bytes; (bytes = read(from_, packet.data(), packet.size())) > 0;) {
        if (chance(random) < loss_ || under_way.size() >= kMaxQueued) continue;
        under_way.emplace_back(Due(), std::vector<char>(packet.data(), packet.data() + bytes));
      }
      for (; !under_way.empty() && under_way.front().first <= Clock::now(); under_way.pop_front()) {
        const std::vector<char>& due = under_way.front().second;
        // Packets that the other device cannot accept are lost.
        if (write(to_, due.data(), due.size()) < 0) continue;
      }
    }
  }

 private:
  // A longer delay is caused by load.
  static constexpr Clock::duration kMaxLate = std::chrono::microseconds(200);

  // Returns when a packet that was just read must arrive. Wake-ups are as late for reading as for writing, so
  // the usual lateness is subtracted twice.
  Clock::time_point Due() const {
    return Clock::now() + std::max(delay_ - 2 * late_, Clock::duration::zero());
  }

  // Waits until a packet arrives or `due`.
  void Await(Clock::time_point due) {
    pollfd arrives = {from_, POLLIN, 0};
    if (due == Clock::time_point::max()) {
      poll(&arrives, 1, -1);
      return;
    }
    const auto rest = std::chrono::duration_cast<std::chrono::nanoseconds>(due - Clock::now()).count();
    if (rest <= 0) return;
    const timespec timeout = {rest / 1'000'000'000, rest % 1'000'000'000};
    if (ppoll(&arrives, 1, &timeout, nullptr) == 0)
      late_ += (std::min(Clock::now() - due, kMaxLate) - late_) / 16;
  }

  const int from_, to_;
  const Clock::duration delay_;
  const double loss_;
  const unsigned seed_;
  Clock::duration late_{};  // recent lateness of wake-ups
};

}  // namespace

int main(int argc, char** argv) {
  char *delay_end = nullptr, *loss_end = nullptr;
  const long delay_us = argc == 5 ? std::strtol(argv[3], &delay_end, 10) : 0;
  const double loss_percent = argc == 5 ? std::strtod(argv[4], &loss_end) : 0;
  if (argc != 5 || *delay_end != '\0' || *loss_end != '\0') {
    std::fprintf(stderr, "usage: delay_line NAME NAME DELAY_US LOSS_PERCENT\n");
    return 2;
  }
  const int a = OpenTun(argv[1]), b = OpenTun(argv[2]);
  const std::chrono::microseconds delay(delay_us);
  const double loss = loss_percent / 100;
  std::thread([&] { Direction(a, b, delay, loss, 1).Run(); }).detach();
  std::thread([&] { Direction(b, a, delay, loss, 2).Run(); }).detach();
  std::puts("ready");
  std::fflush(stdout);
  char byte;
  while (read(0, &byte, 1) > 0) continue;
  std::_Exit(0);
}
