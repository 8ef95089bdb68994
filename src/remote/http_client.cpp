#include "remote/http_client.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <random>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/interruption.h"
#include "base/log.h"
#include "base/text.h"
#include "remote/url.h"

namespace tessera {
namespace {

constexpr int kMaxRedirects = 10;
constexpr size_t kMaxErrorBody = 64 << 10;

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

bool is_passing(int status) {
  return status == 408 || status == 429 || (status >= 500 && status != 501 && status != 505);
}

// What an attempt has come to: an answer, or why there is none to use.
struct Attempt {
  HttpResponse response;
  std::string failure;
  bool passing = false;
  bool unreachable = false;
};

// "cannot fetch 'https://host/path'"
std::string cannot(const HttpRequest& request) {
  std::string_view action = request.method.empty()       ? "fetch"
                            : request.method == "DELETE" ? "remove"
                                                         : "write";
  return cat("cannot ", action, " '", public_url(request.url), "'");
}

class Sender {
 public:
  Sender(const HttpRequest& request, const HttpSettings& settings)
      : request_(request), settings_(settings), first_(parse_url(request.url)) {}

  HttpResponse send() {
    double begin = monotonic_seconds();
    progress_ = begin;
    for (int count = 1;; ++count) {
      Attempt attempt = try_once();
      attempt.response.attempts = count;
      if (attempt.failure.empty()) return std::move(attempt.response);
      double now = monotonic_seconds();
      std::optional<int64_t> asked = asked_wait(attempt.response);
      double wait = std::max(next_wait(count), static_cast<double>(asked.value_or(0)));
      if (!attempt.passing || count >= settings_.attempts ||
          now - progress_ + wait > settings_.deadline)
        give_up(attempt, count, now - begin, asked);
      if (count >= 2 || wait >= 5) {
        TESSERA_WARN(cat(cannot(request_), " yet: ", attempt.failure, "; attempt ", count + 1,
                         " follows in ", format_duration(wait)));
      }
      rest(wait);
    }
  }

 private:
  Attempt try_once() {
    Attempt attempt;
    Url url = first_;
    bool trusted = true;  // still where the secrets are meant for
    for (int hops = 0;; ++hops) {
      exchange(url, trusted, attempt);
      HttpResponse& response = attempt.response;
      if (!attempt.failure.empty() || !is_redirect(response.status)) break;
      if (request_.sign_as || !request_.method.empty()) break;  // it is good for one host
      if (hops == kMaxRedirects) {
        attempt.failure = cat("more than ", kMaxRedirects, " redirects");
        break;
      }
      const std::string* location = find_header(response.headers, "location");
      if (!location) break;  // S3 names the region of a bucket so
      std::optional<Url> next = resolve_reference(url, *location);
      if (!next) {
        attempt.failure = cat("status ", response.status, " leads to no http(s) address");
        break;
      }
      if (url.scheme == "https" && next->scheme == "http") {
        attempt.failure = cat("it leads from https to plain '", public_url(next->text), "'");
        break;
      }
      trusted = trusted && same_origin(first_, *next);
      response.redirects.push_back(std::move(response.headers));
      url = std::move(*next);
    }
    attempt.response.url = url.text;
    attempt.response.trusted = trusted;
    return attempt;
  }

  void exchange(const Url& url, bool trusted, Attempt& attempt) {
    HttpExchange exchange;
    exchange.url = url.text;
    exchange.head = request_.head;
    exchange.method = request_.method;
    exchange.body = request_.body;
    exchange.headers = request_.headers;
    exchange.headers.emplace_back("Accept-Encoding", "identity");
    if (trusted && !request_.authorization.empty())
      exchange.headers.emplace_back("Authorization", request_.authorization);
    if (request_.range) {
      exchange.range =
          cat(request_.range->first, "-", request_.range->first + request_.range->second - 1);
    }
    exchange.sign_as = request_.sign_as;
    exchange.timeouts = settings_.timeouts;
    exchange.cancel = request_.cancel;
    HttpResponse& response = attempt.response;
    response.body.clear();
    response.body_bytes = 0;
    bool too_long = false;
    exchange.on_body = [&](int status, const HttpHeaders& headers, std::string_view piece) {
      status = meant_status(status, headers);
      if (status < 200 || status > 299) {
        response.body.append(piece.substr(0, kMaxErrorBody - response.body.size()));
        return response.body.size() < kMaxErrorBody;  // it need not have an end
      }
      if (status != 206 && request_.range) return false;
      too_long = piece.size() > request_.max_body - response.body_bytes;
      if (too_long) return false;
      if (request_.sink) {
        request_.sink(response.body_bytes, piece);
      } else {
        response.body.append(piece);
      }
      response.body_bytes += piece.size();
      progress_ = monotonic_seconds();
      return true;
    };
    HttpOutcome outcome = exchange_http(exchange);
    response.status = meant_status(outcome.status, outcome.headers);
    response.headers = std::move(outcome.headers);
    attempt.failure = outcome.failure;
    attempt.passing = outcome.passing;
    attempt.unreachable = outcome.unreachable;
    if (too_long) {
      attempt.failure = cat("the answer is longer than ", request_.max_body, " bytes");
      attempt.passing = request_.range.has_value();  // else a whole one may well be so long
    } else if (attempt.failure.empty()) {
      judge(attempt);
    }
  }

  // Some servers (rclone's of S3) send a part with status 200, which is that of a whole file.
  int meant_status(int status, const HttpHeaders& headers) const {
    return status == 200 && request_.range && find_header(headers, "content-range") ? 206 : status;
  }

  void judge(Attempt& attempt) const {
    const HttpResponse& response = attempt.response;
    if (is_passing(response.status)) {
      attempt.failure = cat("status ", response.status, server_reason(response));
      attempt.passing = true;
    } else if (response.status < 200 || response.status >= 500) {
      attempt.failure = cat("status ", response.status, server_reason(response));
    } else if (response.status < 300 && request_.flaw) {
      attempt.failure = request_.flaw(response);
      attempt.passing = !attempt.failure.empty();
    }
  }

  // Until a server that is overburdened wants to be asked again.
  static std::optional<int64_t> asked_wait(const HttpResponse& response) {
    if (!is_passing(response.status)) return {};
    std::optional<int64_t> wait;
    if (const std::string* value = find_header(response.headers, "retry-after"))
      wait = parse_retry_after(*value, static_cast<int64_t>(std::time(nullptr)));
    if (const std::string* value = find_header(response.headers, "ratelimit"))
      if (auto seconds = parse_rate_limit(*value)) wait = std::max(wait.value_or(0), *seconds);
    return wait;
  }

  double next_wait(int attempts) const {
    thread_local std::minstd_rand random(std::random_device{}());
    double wait = settings_.first_wait;
    for (int i = 1; i < attempts && wait < settings_.longest_wait; ++i) wait *= 2;
    wait = std::min(wait, settings_.longest_wait);
    return wait * std::uniform_real_distribution<>(0.5, 1)(random);
  }

  void rest(double seconds) const {
    double end = monotonic_seconds() + seconds;
    for (;;) {
      check_interruption();
      if (request_.cancel && request_.cancel->load(std::memory_order_relaxed)) throw Interrupted();
      double left = end - monotonic_seconds();
      if (left <= 0) return;
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(left, 0.05)));
    }
  }

  [[noreturn]] void give_up(const Attempt& attempt, int count, double spent,
                            std::optional<int64_t> asked) const {
    std::string message = cat(cannot(request_), ": ", attempt.failure);
    message += count == 1 ? " (1 attempt)"
                          : cat(" (", count, " attempts in ", format_duration(spent), ")");
    if (asked && *asked > 0) message += cat("; the server asks to wait ", *asked, " s");
    if (attempt.unreachable) {
      message += "; check the network of this machine, and https_proxy where there is a proxy";
      if (!request_.advice.empty()) message += cat("; ", request_.advice);
    } else {
      message += attempt.passing ? "; try again later" : "; check the address";
    }
    throw UserError(message);
  }

  const HttpRequest& request_;
  const HttpSettings& settings_;
  Url first_;
  double progress_ = 0;  // when it began, or the last piece of what was asked for came
};

// The text between <NAME> and </NAME>, as S3 names what is wrong.
std::string_view xml_element(std::string_view body, std::string_view name) {
  std::string open = cat("<", name, ">"), close = cat("</", name, ">");
  size_t begin = body.find(open);
  if (begin == std::string_view::npos) return {};
  body.remove_prefix(begin + open.size());
  size_t end = body.find(close);
  return end == std::string_view::npos ? std::string_view() : body.substr(0, end);
}

}  // namespace

HttpResponse send_request(const HttpRequest& request, const HttpSettings& settings) {
  return Sender(request, settings).send();
}

std::string server_reason(const HttpResponse& response) {
  std::string reason;
  if (const std::string* message = find_header(response.headers, "x-error-message")) {
    reason = *message;
  } else if (std::string_view code = xml_element(response.body, "Code"); !code.empty()) {
    reason = cat(code, ": ", xml_element(response.body, "Message"));
  }
  if (reason.empty()) return "";
  reason.resize(std::min<size_t>(reason.size(), 200));
  for (char& c : reason) {
    if (c < 0x20 || c == 0x7f) c = '?';  // what a server sends must not steer a terminal
  }
  return cat(" (", reason, ")");
}

void refuse_response(const HttpRequest& request, const HttpResponse& response,
                     std::string_view advice) {
  throw UserError(cat(cannot(request), ": status ", response.status, server_reason(response),
                      response.attempts > 1 ? cat(" (", response.attempts, " attempts)") : "",
                      advice.empty() ? "" : "; ", advice));
}

}  // namespace tessera
