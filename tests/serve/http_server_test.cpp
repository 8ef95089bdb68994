#include "serve/http_server.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/text.h"
#include "tests/base/error_expectation.h"
#include "tests/serve/http_get.h"

namespace tessera {
namespace {

HttpServer::Reply echo(const HttpServer::Request& request) {
  if (request.path == "/broken") throw std::runtime_error("something broke");
  return {200, cat("path ", request.path, " token ", request.authorization, "\n"), "text/x-test"};
}

TEST(HttpServer, AnswersFromTheFunction) {
  HttpServer server({}, echo);
  ASSERT_GT(server.port(), 0);
  const std::string answer =
      http_answer(server.port(), "/a%20b?c=d", "GET", "Authorization: Bearer x\r\n");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 ")) << answer;
  expect_contains(answer, "Content-Type: text/x-test\r\n");
  expect_contains(answer, "path /a b token Bearer x\n");
  const std::string head = http_answer(server.port(), "/a", "HEAD");
  EXPECT_TRUE(head.starts_with("HTTP/1.1 200 ")) << head;
  EXPECT_TRUE(head.ends_with("\r\n\r\n")) << head;
}

TEST(HttpServer, RefusesOtherMethodsAndSaysWhatBroke) {
  HttpServer server({}, echo);
  const std::string post = http_answer(server.port(), "/", "POST", "Content-Length: 0\r\n");
  EXPECT_TRUE(post.starts_with("HTTP/1.1 405 ")) << post;
  expect_contains(post, "Allow: GET, HEAD\r\n");
  for (const size_t size : {5, 200'000}) {
    LoopbackConnection connection(server.port());
    connection.send(
        cat("POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: ", size,
            "\r\n\r\n", std::string(size, 'x')));
    const std::string answer = connection.receive();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 405 ")) << size << " bytes: " << answer;
  }
  const std::string broken = http_answer(server.port(), "/broken");
  EXPECT_TRUE(broken.starts_with("HTTP/1.1 500 ")) << broken;
  expect_contains(broken, "something broke");
  EXPECT_EQ(http_answer(server.port(), "/" + std::string(100'000, 'x')).find("HTTP/1.1 200"),
            std::string::npos);
  EXPECT_TRUE(http_answer(server.port(), "/").starts_with("HTTP/1.1 200 ")) << "it goes on";
}

TEST(HttpServer, ClosesWhoSaysNothing) {
  HttpServer server({.deadline = std::chrono::seconds(1)}, echo);
  LoopbackConnection silent(server.port());
  silent.send("GET / HT");
  EXPECT_TRUE(http_answer(server.port(), "/").starts_with("HTTP/1.1 200 ")) << "beside it";
  EXPECT_EQ(silent.receive().find("HTTP/1.1 200"), std::string::npos);
}

TEST(HttpServer, WhoSendsSlowlyHoldsUpNobody) {
  HttpServer server({}, echo);
  std::vector<std::unique_ptr<LoopbackConnection>> slow;
  for (int i = 0; i < 80; ++i) {
    slow.push_back(std::make_unique<LoopbackConnection>(server.port()));
    slow.back()->send("GET / HTTP/1.1\r\nHost: localhost\r\nX: ");
  }
  for (int i = 0; i < 20; ++i) {
    for (const auto& connection : slow) connection->send("a");
    EXPECT_TRUE(http_answer(server.port(), "/").starts_with("HTTP/1.1 200 ")) << i;
  }
}

TEST(HttpServer, ARequestHasADeadline) {
  HttpServer server({.deadline = std::chrono::seconds(2)}, echo);
  LoopbackConnection slow(server.port());
  slow.send("GET / HTTP/1.1\r\nX: ");
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    slow.send("a");
  }
  http_answer(server.port(), "/");
  slow.send("\r\n\r\n");
  EXPECT_EQ(slow.receive(), "");
}

TEST(HttpServer, EndsWithOpenConnections) {
  auto server = std::make_unique<HttpServer>(HttpServer::Options{}, echo);
  const int port = server->port();
  LoopbackConnection open(port);
  open.send("GET / HT");
  server.reset();
  EXPECT_FALSE(LoopbackConnection(port).connected());
}

TEST(HttpServer, SaysWhyItCannotServe) {
  HttpServer first({}, echo);
  expect_contains(user_error([&] { HttpServer second({.port = first.port()}, echo); }),
                  cat("cannot serve at 127.0.0.1 port ", first.port(), ": Address already in use"));
  expect_contains(user_error([] { HttpServer server({.address = "localhost"}, echo); }),
                  "cannot serve at 'localhost': give an address in numbers");
  expect_contains(user_error([] { HttpServer server({.port = 70000}, echo); }), "ports are 0 to");
}

}  // namespace
}  // namespace tessera
