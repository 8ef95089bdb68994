#include "remote/http_client.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/clock.h"
#include "base/interruption.h"
#include "tests/base/error_expectation.h"
#include "tests/remote/local_server.h"

namespace tessera {
namespace {

class HttpClient : public testing::Test {
 protected:
  HttpResponse get(const std::string& url) {
    HttpRequest request;
    request.url = url;
    request.authorization = "Bearer very-secret";
    return send_request(request, settings_);
  }

  LocalServer server_;
  std::string content_ = test_content(3000);
  std::filesystem::path file_ = server_.write("files/a.bin", content_);
  HttpSettings settings_ = server_.options().http;
};

TEST_F(HttpClient, GetsAFile) {
  HttpResponse response = get(server_.url("/files/a.bin"));
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, content_);
  EXPECT_EQ(response.attempts, 1);
  HttpRequest head;
  head.url = server_.url("/files/a.bin");
  head.head = true;
  EXPECT_EQ(*find_header(send_request(head, settings_).headers, "content-length"), "3000");
}

TEST_F(HttpClient, RepeatsWhatMayPass) {
  HttpResponse response = get(server_.url("/files/a.bin?plan=503,drop,500,ok&id=1"));
  EXPECT_EQ(response.body, content_);
  // libcurl itself repeats what a connection that it has kept open drops at once.
  EXPECT_GE(response.attempts, 3);
  EXPECT_EQ(server_.requests("id=1").size(), 4u);
}

TEST_F(HttpClient, DoesNotRepeatARefusal) {
  for (int status : {400, 401, 403, 404, 410}) {
    HttpResponse response = get(server_.url(cat("/files/a.bin?plan=", status, ",ok&id=", status)));
    EXPECT_EQ(response.status, status);
    EXPECT_EQ(response.attempts, 1);
  }
}

TEST_F(HttpClient, WaitsAsLongAsTheServerAsks) {
  std::vector<std::thread> requests;
  for (std::string word : {"503:1", "429:t1", "429:date"}) {
    requests.emplace_back([this, word] {
      double begin = monotonic_seconds();
      HttpResponse response = get(server_.url(cat("/files/a.bin?plan=", word, ",ok&id=", word)));
      EXPECT_EQ(response.attempts, 2) << word;
      // A date has whole seconds.
      EXPECT_GE(monotonic_seconds() - begin, word == "429:date" ? 0.5 : 1) << word;
    });
  }
  for (std::thread& request : requests) request.join();
}

TEST_F(HttpClient, GivesUpWhereTheServerAsksForMoreThanTheDeadline) {
  double begin = monotonic_seconds();
  std::string message =
      user_error([&] { get(server_.url("/files/a.bin?plan=429:3600&X=hidden")); });
  EXPECT_LT(monotonic_seconds() - begin, 60);
  expect_contains(message, "/files/a.bin': status 429 (1 attempt); the server asks to wait 3600 s");
  expect_lacks(message, "hidden");
}

TEST_F(HttpClient, SaysWhatHappenedToTheEnd) {
  std::string message = user_error([&] { get(server_.url("/files/a.bin?plan=502&id=2")); });
  expect_contains(message, "status 502 (4 attempts in ");
  expect_contains(message, "try again later");
  EXPECT_EQ(server_.requests("id=2").size(), 4u);
  message = user_error([&] { get(server_.url("/files/a.bin?plan=drop&id=3")); });
  expect_contains(message, "(4 attempts in ");
}

TEST_F(HttpClient, AnErrorNeedNotEnd) {
  EXPECT_EQ(get(server_.url("/files/a.bin?plan=404:endless&id=4")).status, 404);
  expect_contains(user_error([&] { get(server_.url("/files/a.bin?plan=503:endless&id=5")); }),
                  "status 503");
}

TEST_F(HttpClient, NobodyIsThere) {
  std::string message = user_error([&] { get("http://127.0.0.1:1/file"); });
  expect_contains(message, "cannot fetch 'http://127.0.0.1:1/file': ");
  expect_contains(message, "check the network of this machine");
}

TEST_F(HttpClient, SecretsStayWithTheirOrigin) {
  std::string away = server_.other_url("/files/a.bin"), here = server_.url("/files/a.bin?here");
  EXPECT_EQ(get(server_.url(cat("/hop/302?to=", here))).body, content_);
  EXPECT_EQ(get(server_.url(cat("/hop/307?to=", away))).body, content_);
  // And not when the other host sends back.
  std::string back = server_.other_url(cat("/hop/302?to=", server_.url("/files/a.bin?back")));
  HttpResponse response = get(server_.url(cat("/hop/302?to=", back)));
  EXPECT_EQ(response.body, content_);
  EXPECT_FALSE(response.trusted);
  EXPECT_EQ(response.redirects.size(), 2u);
  for (const std::string& line : server_.requests("host=localhost"))
    expect_contains(line, "auth=- ");
  expect_contains(server_.requests("GET /files/a.bin?back")[0], "auth=- ");
  expect_contains(server_.requests("GET /files/a.bin?here")[0], "auth=Bearer very-secret");
  EXPECT_EQ(server_.requests("host=localhost").size(), 2u);
}

TEST_F(HttpClient, RedirectsThatLeadNowhere) {
  EXPECT_EQ(get(server_.url("/hop/302?to=/files/a.bin")).body, content_);
  expect_contains(user_error([&] { get(server_.url("/hop/301?to=file:///etc/passwd")); }),
                  "status 301 leads to no http(s) address");
  expect_contains(user_error([&] { get(server_.url("/hop/308")); }), "more than 10 redirects");
}

TEST_F(HttpClient, AnswersAreBounded) {
  HttpRequest request;
  request.url = server_.url("/files/a.bin");
  request.max_body = 2999;
  expect_contains(user_error([&] { send_request(request, settings_); }),
                  "the answer is longer than 2999 bytes (1 attempt)");
  request.max_body = 3000;
  EXPECT_EQ(send_request(request, settings_).body_bytes, 3000u);
}

TEST_F(HttpClient, ATrickleIsGivenUp) {
  settings_.timeouts.low_speed_bytes = 500;
  settings_.timeouts.low_speed_seconds = 3;
  settings_.attempts = 2;
  std::thread recovers([this, patient = settings_]() mutable {
    patient.attempts = 4;
    HttpRequest request;
    request.url = server_.url("/files/a.bin?plan=trickle,ok&id=4");
    HttpResponse response = send_request(request, patient);
    EXPECT_EQ(response.body, content_);
    EXPECT_GE(response.attempts, 2);
  });
  std::string message = user_error([&] { get(server_.url("/files/a.bin?plan=trickle&id=5")); });
  expect_contains(message, "too slow");
  expect_contains(message, "(2 attempts");
  recovers.join();
}

TEST_F(HttpClient, TheTimeOfATransferIsNotThatOfTheDeadline) {
  settings_.deadline = 5;
  HttpResponse response = get(server_.url("/files/a.bin?plan=trickle:80,ok&id=6"));
  EXPECT_EQ(response.body, content_);
  EXPECT_EQ(response.attempts, 2);
}

TEST_F(HttpClient, IsInterrupted) {
  double begin = monotonic_seconds();
  for (const char* plan : {"slow:100", "429:90"}) {
    std::thread asker([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      request_interruption();
    });
    EXPECT_THROW(get(server_.url(cat("/files/a.bin?plan=", plan, "&id=", plan))), Interrupted);
    asker.join();
    clear_interruption();
  }
  EXPECT_LT(monotonic_seconds() - begin, 60);
}

}  // namespace
}  // namespace tessera
