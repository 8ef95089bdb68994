#include "remote/http_transport.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <exception>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "base/interruption.h"
#include "base/parse_number.h"
#include "base/text.h"
#include "remote/curl_library.h"

namespace tessera {
namespace {

constexpr size_t kMaxHeaderBytes = 256 << 10;
constexpr size_t kMaxIdleHandles = 16;

struct EasyFunctions {
  decltype(&::curl_easy_init) init =
      reinterpret_cast<decltype(&::curl_easy_init)>(curl_function("curl_easy_init"));
  decltype(&::curl_easy_cleanup) cleanup =
      reinterpret_cast<decltype(&::curl_easy_cleanup)>(curl_function("curl_easy_cleanup"));
  decltype(&::curl_easy_reset) reset =
      reinterpret_cast<decltype(&::curl_easy_reset)>(curl_function("curl_easy_reset"));
  CURLcode (*set)(CURL*, CURLoption, ...) =
      reinterpret_cast<CURLcode (*)(CURL*, CURLoption, ...)>(curl_function("curl_easy_setopt"));
  decltype(&::curl_easy_perform) perform =
      reinterpret_cast<decltype(&::curl_easy_perform)>(curl_function("curl_easy_perform"));
  decltype(&::curl_easy_strerror) describe =
      reinterpret_cast<decltype(&::curl_easy_strerror)>(curl_function("curl_easy_strerror"));
  decltype(&::curl_slist_append) append =
      reinterpret_cast<decltype(&::curl_slist_append)>(curl_function("curl_slist_append"));
  decltype(&::curl_slist_free_all) free_list =
      reinterpret_cast<decltype(&::curl_slist_free_all)>(curl_function("curl_slist_free_all"));
};

const EasyFunctions& curl() {
  static const EasyFunctions table;
  return table;
}

// Handles that wait for the next exchange, each with its open connections. Never destroyed: a
// thread that reads ahead may outlive the end of main().
struct IdleHandles {
  std::mutex mutex;
  std::vector<CURL*> handles;
};
IdleHandles& idle_handles() {
  static auto* idle = new IdleHandles;
  return *idle;
}

class Handle {
 public:
  Handle() {
    {
      std::lock_guard lock(idle_handles().mutex);
      auto& handles = idle_handles().handles;
      if (!handles.empty()) {
        handle_ = handles.back();
        handles.pop_back();
      }
    }
    if (!handle_) handle_ = curl().init();
    if (!handle_) throw DeviceError("libcurl has no memory for a connection");
    curl().reset(handle_);
  }
  ~Handle() {
    curl().reset(handle_);
    {
      std::lock_guard lock(idle_handles().mutex);
      if (idle_handles().handles.size() < kMaxIdleHandles) {
        idle_handles().handles.push_back(handle_);
        return;
      }
    }
    curl().cleanup(handle_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  template <class T>
  void set(CURLoption option, T value) {
    CURLcode code = curl().set(handle_, option, value);
    if (code != CURLE_OK)
      throw UserError(cat("libcurl of this machine is too old or lacks a feature (option ",
                          static_cast<int>(option), ": ", curl().describe(code),
                          "); install version 7.85 or later"));
  }
  CURLcode perform() { return curl().perform(handle_); }

 private:
  CURL* handle_ = nullptr;
};

// What the callbacks of an exchange work on. No exception may pass through libcurl.
struct Progress {
  const HttpExchange* exchange;
  HttpOutcome outcome;
  size_t header_bytes = 0;
  std::exception_ptr error;
};

size_t take_header(char* data, size_t size, size_t count, void* user) {
  auto& progress = *static_cast<Progress*>(user);
  size_t bytes = size * count;
  try {
    std::string_view line = trim(std::string_view(data, bytes));
    progress.header_bytes += bytes;
    if (progress.header_bytes > kMaxHeaderBytes) {
      progress.outcome.failure = cat("the header is longer than ", kMaxHeaderBytes, " bytes");
      return 0;
    }
    if (line.starts_with("HTTP/")) {  // the answer after `100 Continue` begins anew
      size_t space = line.find(' ');
      auto status = space == std::string_view::npos
                        ? std::nullopt
                        : parse_number<uint64_t>(line.substr(space + 1, 3));
      progress.outcome.status = static_cast<int>(status.value_or(0));
      progress.outcome.headers.clear();
    } else {
      add_header_line(progress.outcome.headers, line);
    }
  } catch (...) {
    progress.error = std::current_exception();
    return 0;
  }
  return bytes;
}

size_t take_body(char* data, size_t size, size_t count, void* user) {
  auto& progress = *static_cast<Progress*>(user);
  size_t bytes = size * count;
  try {
    HttpOutcome& outcome = progress.outcome;
    if (progress.exchange->on_body &&
        !progress.exchange->on_body(outcome.status, outcome.headers, {data, bytes})) {
      outcome.stopped = true;
      return CURL_WRITEFUNC_ERROR;
    }
  } catch (...) {
    progress.error = std::current_exception();
    return CURL_WRITEFUNC_ERROR;
  }
  return bytes;
}

bool is_given_up(const HttpExchange& exchange) {
  return interrupted() || (exchange.cancel && exchange.cancel->load(std::memory_order_relaxed));
}

int look_for_interruption(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return is_given_up(*static_cast<Progress*>(user)->exchange);
}

bool is_unreachable(CURLcode code) {
  return code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY ||
         code == CURLE_COULDNT_CONNECT || code == CURLE_PROXY;
}

bool is_passing(CURLcode code) {
  constexpr std::array kPassing{
      CURLE_PARTIAL_FILE,
      CURLE_OPERATION_TIMEDOUT,
      CURLE_SSL_CONNECT_ERROR,
      CURLE_GOT_NOTHING,
      CURLE_SEND_ERROR,
      CURLE_RECV_ERROR,
      CURLE_HTTP2,
      CURLE_HTTP2_STREAM,
      CURLE_AGAIN,
      CURLE_WEIRD_SERVER_REPLY,
  };
  return is_unreachable(code) || std::ranges::find(kPassing, code) != kPassing.end();
}

class HeaderList {
 public:
  ~HeaderList() { curl().free_list(list_); }
  void add(const std::string& line) {
    curl_slist* longer = curl().append(list_, line.c_str());
    if (!longer) throw DeviceError("libcurl has no memory for a header");
    list_ = longer;
  }
  curl_slist* get() const { return list_; }

 private:
  curl_slist* list_ = nullptr;
};

}  // namespace

HttpOutcome exchange_http(const HttpExchange& exchange) {
  Progress progress{&exchange, {}, 0, nullptr};
  HeaderList headers;
  if (!exchange.body.empty()) headers.add("Content-Type: application/octet-stream");
  for (const auto& [name, value] : exchange.headers) {
    // A line end in a token would make a header of its own.
    TESSERA_CHECK(value.find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos, name);
    headers.add(cat(name, ": ", value));
  }
  char why[CURL_ERROR_SIZE] = "";
  Handle handle;
  handle.set(CURLOPT_URL, exchange.url.c_str());
  handle.set(CURLOPT_PROTOCOLS_STR, "http,https");
  handle.set(CURLOPT_PATH_AS_IS, 1L);
  handle.set(CURLOPT_FOLLOWLOCATION, 0L);
  handle.set(CURLOPT_NOSIGNAL, 1L);
  handle.set(CURLOPT_USERAGENT, "tessera/0.1");
  handle.set(CURLOPT_HTTPHEADER, headers.get());
  handle.set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  handle.set(CURLOPT_ERRORBUFFER, why);
  handle.set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(exchange.timeouts.connect_milliseconds));
  handle.set(CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(exchange.timeouts.low_speed_bytes));
  handle.set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(exchange.timeouts.low_speed_seconds));
  handle.set(CURLOPT_TIMEOUT_MS, static_cast<long>(exchange.timeouts.total_milliseconds));
  if (exchange.direct) handle.set(CURLOPT_PROXY, "");
  if (exchange.tls) {
    const TlsFiles& tls = *exchange.tls;
    if (!tls.authorities.empty()) handle.set(CURLOPT_CAINFO, tls.authorities.c_str());
    if (!tls.certificate.empty()) handle.set(CURLOPT_SSLCERT, tls.certificate.c_str());
    if (!tls.key.empty()) handle.set(CURLOPT_SSLKEY, tls.key.c_str());
  }
  handle.set(CURLOPT_HEADERFUNCTION, &take_header);
  handle.set(CURLOPT_HEADERDATA, &progress);
  handle.set(CURLOPT_WRITEFUNCTION, &take_body);
  handle.set(CURLOPT_WRITEDATA, &progress);
  handle.set(CURLOPT_XFERINFOFUNCTION, &look_for_interruption);
  handle.set(CURLOPT_XFERINFODATA, &progress);
  handle.set(CURLOPT_NOPROGRESS, 0L);
  if (exchange.head) handle.set(CURLOPT_NOBODY, 1L);
  if (exchange.method == "PUT" || exchange.method == "POST") {
    handle.set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(exchange.body.size()));
    handle.set(CURLOPT_POSTFIELDS, exchange.body.data() ? exchange.body.data() : "");  // no copy
  }
  if (!exchange.method.empty()) handle.set(CURLOPT_CUSTOMREQUEST, exchange.method.c_str());
  if (!exchange.range.empty()) handle.set(CURLOPT_RANGE, exchange.range.c_str());
  if (exchange.sign_as) {
    std::string scheme = cat("aws:amz:", exchange.sign_as->region, ":s3");
    handle.set(CURLOPT_AWS_SIGV4, scheme.c_str());
    handle.set(CURLOPT_USERNAME, exchange.sign_as->access_key.c_str());
    handle.set(CURLOPT_PASSWORD, exchange.sign_as->secret_key.c_str());
  }
  CURLcode code = handle.perform();

  if (progress.error) std::rethrow_exception(progress.error);
  if (is_given_up(exchange)) throw Interrupted();
  HttpOutcome& outcome = progress.outcome;
  if (code == CURLE_OK || outcome.stopped) return std::move(outcome);
  if (outcome.failure.empty()) outcome.failure = why[0] ? why : curl().describe(code);
  outcome.passing = is_passing(code);
  outcome.unreachable = is_unreachable(code);
  return std::move(outcome);
}

}  // namespace tessera
