#include "launch/etcd_client.h"

#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "launch/membership_store.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kDeadline{2'000}, kNextCall{100};
constexpr size_t kMaxAnswer = 16 << 20;
// Codes of gRPC.
constexpr int kBadArgument = 3, kNotFound = 5, kNotAllowed = 7, kUnauthenticated = 16;

std::string read_password(const std::string& path) {
  std::string text = read_file(path);
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && (status.st_mode & S_IRWXO) != 0) {
    throw UserError(cat("'", path,
                        "' is open to other users of this host, and holds a password: chmod 600 ",
                        path));
  }
  std::string_view line = trim(text);
  if (line.empty() || line.find('\n') != std::string_view::npos || line.size() > 1024)
    throw UserError(cat("'", path, "' must hold one line, the password of a user of etcd"));
  return std::string(line);
}

// What a server sends must not steer a terminal.
std::string printable(std::string text) {
  text.resize(std::min<size_t>(text.size(), 200));
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

}  // namespace

EtcdClient::EtcdClient(std::vector<Endpoint> endpoints, const EtcdAccess& access)
    : endpoints_(std::move(endpoints)),
      access_(access),
      tls_{access.cacert, access.cert, access.key} {
  for (const std::string* file : {&access.cacert, &access.cert, &access.key}) {
    if (!file->empty()) read_file(*file);  // says what is wrong with it
  }
  if (!access.password_file.empty()) password_ = read_password(access.password_file);
}

std::string EtcdClient::url(size_t endpoint) const {
  return cat(access_.protocol, "://", to_string(endpoints_[endpoint]));
}

std::string EtcdClient::place() const {
  std::vector<std::string> urls;
  for (size_t i = 0; i < endpoints_.size(); ++i) urls.push_back(url(i));
  return cat("etcd at ", join(urls, ", "));
}

EtcdClient::Reply EtcdClient::send(size_t endpoint, const std::string& path,
                                   const std::string& body, milliseconds longest,
                                   bool first_line_only) {
  Reply reply;
  HttpExchange exchange;
  exchange.url = cat(url(endpoint), "/v3/", path);
  exchange.method = "POST";
  exchange.body = body;
  exchange.tls = &tls_;
  exchange.direct = true;
  int deadline = static_cast<int>(std::max<int64_t>(longest.count(), 1));
  exchange.timeouts = {std::min(deadline, static_cast<int>(kDeadline.count())), 0, 0, deadline};
  {
    std::lock_guard lock(mutex_);
    if (!token_.empty()) exchange.headers.emplace_back("Authorization", token_);
  }
  exchange.on_body = [&](int, const HttpHeaders&, std::string_view piece) {
    reply.body += piece;
    if (first_line_only) {
      // The first line of a watch says that it has begun.
      size_t line = reply.body.find('\n');
      return line == std::string::npos || line + 1 == reply.body.size();
    }
    return reply.body.size() <= kMaxAnswer;
  };
  reply.outcome = exchange_http(exchange);
  return reply;
}

EtcdAnswer EtcdClient::call(const std::string& path, const std::string& body) {
  std::string reasons;
  bool repeated = false, authenticated = false;
  size_t first = current_;
  for (size_t i = 0; i < endpoints_.size(); ++i) {
    size_t endpoint = (first + i) % endpoints_.size();
    Reply reply = send(endpoint, path, body, kDeadline, false);
    const int status = reply.outcome.status;
    if (!reply.outcome.failure.empty() || status >= 500 || status == 0 || status == 429) {
      std::string why =
          reply.outcome.failure.empty() ? cat("status ", status) : printable(reply.outcome.failure);
      if (auto answer = parse_etcd_answer(reply.body); answer && !answer->error.empty())
        why += cat(" (", printable(answer->error), ")");
      reasons += cat(reasons.empty() ? "" : "; ", url(endpoint), ": ", why);
      repeated = repeated || !reply.outcome.unreachable;
      continue;
    }
    EtcdAnswer answer = judge(endpoint, reply);
    bool has_user = !access_.user.empty() && path != "auth/authenticate";
    // A member that was started again does not know the tokens of before.
    bool unknown = answer.code == kUnauthenticated ||
                   (answer.code == kBadArgument &&
                    answer.error.find("user name is empty") != std::string::npos);
    if (has_user && unknown && !authenticated) {
      authenticated = true;
      authenticate();
      --i;
      continue;
    }
    if (unknown || answer.code == kNotAllowed) {
      throw UserError(cat("etcd at ", url(endpoint), " refuses this job: ", printable(answer.error),
                          access_.user.empty()
                              ? "; give --rdzv_conf user=NAME,password_file=FILE"
                              : cat("; may the user '", access_.user,
                                    "' read and write keys that begin with /tessera/?")));
    }
    if (answer.code != 0 && answer.code != kNotFound && path != "auth/authenticate") {
      throw UserError(cat("etcd at ", url(endpoint), " refuses the call ", path, ": ",
                          printable(answer.error), " (code ", answer.code, ")"));
    }
    current_ = endpoint;
    answer.repeated = repeated;
    return answer;
  }
  throw MembershipUnavailableError(
      cat("etcd does not answer: ", reasons, ": does it run there, and can this host reach it?"));
}

EtcdAnswer EtcdClient::judge(size_t endpoint, const Reply& reply) const {
  auto answer = parse_etcd_answer(reply.body);
  bool good = answer && (reply.outcome.status == 200 || answer->code != 0);
  if (good) return *answer;
  throw UserError(cat("what answers at ", url(endpoint), " (status ", reply.outcome.status,
                      ") is no etcd 3.4 or later with its JSON gateway: is it the port of another "
                      "program, or must --rdzv_conf protocol=https be given?"));
}

void EtcdClient::authenticate() {
  {
    std::lock_guard lock(mutex_);
    token_.clear();
  }
  nlohmann::json body{{"name", access_.user}, {"password", password_}};
  EtcdAnswer answer = call("auth/authenticate",
                           body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  if (answer.token.empty()) {
    throw UserError(cat(place(), " refuses the user '", access_.user,
                        "': ", printable(answer.error), "; check --rdzv_conf user and what is in '",
                        access_.password_file, "'"));
  }
  std::lock_guard lock(mutex_);
  token_ = answer.token;
}

void EtcdClient::watch(const std::string& body, milliseconds longest) {
  auto end = steady_clock::now() + longest;
  Reply reply = send(current_, "watch", body, longest, true);
  // Stopped by an event, or over. A member that answers nothing at all must not be asked at once.
  if (reply.outcome.stopped || steady_clock::now() >= end) return;
  std::this_thread::sleep_for(
      std::min<steady_clock::duration>(kNextCall, end - steady_clock::now()));
}

}  // namespace tessera
