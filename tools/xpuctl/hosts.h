// Asks the daemons of --host at the same time. Hosts that do not answer are listed with their error. Not
// thread-safe; starts threads.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "proto/base/start_thread.h"
#include "sdk/control/client.h"
#include "tools/xpuctl/command.h"
#include "tools/xpuctl/csv.h"
#include "tools/xpuctl/host_list.h"
#include "tools/xpuctl/json.h"

namespace xpud::xpuctl {

template <typename Response>
struct HostAnswer {
  std::string host;
  absl::StatusOr<Response> response;
};

// Asks a daemon.
template <typename Response>
using Question = std::function<absl::StatusOr<Response>(control::Client& client)>;

class Hosts {
 public:
  explicit Hosts(const std::vector<std::string>& names) : names_(names) {}

  // Connects to each host anew, so that a host can come back. A call takes 5 s at most; it runs on threads.
  template <typename Response>
  std::vector<HostAnswer<Response>> Ask(const Question<Response>& call) const {
    std::vector<HostAnswer<Response>> answers;
    for (const std::string& name : names_) answers.push_back({name, absl::UnknownError("")});
    std::vector<std::thread> threads;
    for (HostAnswer<Response>& answer : answers) {
      const auto ask = [&answer, &call] {
        auto client = control::Client::Connect(answer.host);
        if (client.ok())
          answer.response = call(*client);
        else
          answer.response = client.status();
      };
      if (auto thread = StartThread("xpud-host", ask); thread.ok())
        threads.push_back(*std::move(thread));
      else
        ask();
    }
    for (std::thread& thread : threads) thread.join();
    return answers;
  }

 private:
  const std::vector<std::string> names_;
};

template <typename Response>
HostList<Response> Answered(const std::vector<HostAnswer<Response>>& answers) {
  HostList<Response> list;
  for (const auto& answer : answers)
    if (answer.response.ok()) list.emplace_back(answer.host, &*answer.response);
  return list;
}

// Formats a host that did not answer.
std::string ErrorLine(const std::string& host, const absl::Status& error);
std::string ErrorObject(const std::string& host, const absl::Status& error);
// Adds the host as the first field of a JSON object.
std::string WithHost(const std::string& host, std::string_view object);

// Formats all hosts that did not answer, in the order of their names: lines for tables, objects for JSON. For
// CSV prints them to stderr and returns "".
template <typename Response>
std::string ErrorLines(const std::vector<HostAnswer<Response>>& answers) {
  std::string text;
  for (const auto& answer : answers)
    if (!answer.response.ok()) text += ErrorLine(answer.host, answer.response.status());
  return text;
}

template <typename Response>
std::string HostsDocument(const std::vector<HostAnswer<Response>>& answers,
                          const std::function<std::string(const HostAnswer<Response>&)>& object) {
  std::string text;
  for (const auto& answer : answers) {
    absl::StrAppend(&text, text.empty() ? "" : ",",
                    answer.response.ok() ? WithHost(answer.host, object(answer))
                                         : ErrorObject(answer.host, answer.response.status()));
  }
  return Document(absl::StrCat("{\"hosts\":[", text, "]}"));
}

template <typename Response>
std::string HostsCsv(const std::vector<HostAnswer<Response>>& answers, bool first,
                     const std::function<Csv(const HostAnswer<Response>&)>& csv) {
  std::string text;
  for (const auto& answer : answers) {
    if (answer.response.ok())
      text += csv(answer).Prefix("host", answer.host).ToString(first && text.empty());
    else
      std::fputs(ErrorLine(answer.host, answer.response.status()).c_str(), stderr);
  }
  return text;
}

}  // namespace xpud::xpuctl
