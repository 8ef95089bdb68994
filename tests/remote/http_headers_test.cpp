#include "remote/http_headers.h"

#include <gtest/gtest.h>

#include "remote/url.h"
#include "tests/base/error_expectation.h"

namespace tessera {
namespace {

TEST(HttpHeaders, LinesAreTakenByName) {
  HttpHeaders headers;
  EXPECT_TRUE(add_header_line(headers, "Content-Length:  12 "));
  EXPECT_TRUE(add_header_line(headers, "X-Empty:"));
  EXPECT_FALSE(add_header_line(headers, "no colon"));
  EXPECT_FALSE(add_header_line(headers, ": no name"));
  EXPECT_FALSE(add_header_line(headers, "a name: with a space"));
  ASSERT_NE(find_header(headers, "content-length"), nullptr);
  EXPECT_EQ(*find_header(headers, "content-length"), "12");
  EXPECT_EQ(*find_header(headers, "x-empty"), "");
  EXPECT_EQ(find_header(headers, "etag"), nullptr);
}

TEST(HttpHeaders, ContentRange) {
  auto range = parse_content_range("bytes 10-19/200");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->first, 10u);
  EXPECT_EQ(range->last, 19u);
  EXPECT_EQ(range->total, 200u);
  EXPECT_FALSE(parse_content_range("bytes 10-19/*")->total);
  EXPECT_FALSE(parse_content_range("bytes */0")->first);
  EXPECT_EQ(parse_content_range("bytes */0")->total, 0u);
  for (const char* bad : {"", "bytes", "bytes 10-19", "bytes 19-10/200", "bytes 10-19/19",
                          "bytes 10-/200", "bytes -5/200", "items 1-2/3", "bytes */*",
                          "bytes 1-99999999999999999999/*", "bytes +1-2/3", "bytes 1-2/3x"})
    EXPECT_FALSE(parse_content_range(bad)) << bad;
}

TEST(HttpHeaders, Dates) {
  EXPECT_EQ(parse_http_date("Thu, 01 Jan 1970 00:00:00 GMT"), 0);
  EXPECT_EQ(parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT"), 784111777);
  EXPECT_EQ(parse_http_date("Tue, 29 Feb 2028 23:59:59 GMT"), 1835481599);
  for (const char* bad : {"", "Sun, 31 Feb 1994 08:49:37 GMT", "Sun, 06 Nov 1994 24:49:37 GMT",
                          "Sun, 06 Nvo 1994 08:49:37 GMT", "Sun, 06 ovD 1994 08:49:37 GMT",
                          "Sunday, 06-Nov-94 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 UTC",
                          "Sun, 06 Nov 1994 08.49.37 GMT"})
    EXPECT_FALSE(parse_http_date(bad)) << bad;
}

TEST(HttpHeaders, WaitsThatAServerAsksFor) {
  EXPECT_EQ(parse_retry_after(" 120 ", 0), 120);
  EXPECT_EQ(parse_retry_after("Sun, 06 Nov 1994 08:49:37 GMT", 784111700), 77);
  EXPECT_EQ(parse_retry_after("Sun, 06 Nov 1994 08:49:37 GMT", 784111800), 0);
  EXPECT_FALSE(parse_retry_after("-1", 0));
  EXPECT_FALSE(parse_retry_after("soon", 0));
  EXPECT_EQ(parse_retry_after("18446744073709551615", 0), int64_t{366} * 86400);

  EXPECT_EQ(parse_rate_limit("\"resolvers\";r=0;t=55"), 55);
  EXPECT_EQ(parse_rate_limit("\"a\";r=0;t=5, \"b;r=0;t=90\";r=0; t=7"), 7);
  EXPECT_FALSE(parse_rate_limit("\"resolvers\";r=12;t=55"));
  EXPECT_FALSE(parse_rate_limit("\"resolvers\";r=0"));
  EXPECT_FALSE(parse_rate_limit(""));
}

TEST(HttpHeaders, NextLink) {
  EXPECT_EQ(parse_next_link("<https://h/a?b=1,2;3>; rel=\"next\""), "https://h/a?b=1,2;3");
  EXPECT_EQ(parse_next_link("</x>; rel=prev, </y>; title=\"a, b\"; REL=\"last NEXT\""), "/y");
  EXPECT_FALSE(parse_next_link("</x>; rel=\"prev\""));
  EXPECT_FALSE(parse_next_link("</x>; rel=prev; rel=next"));
  EXPECT_FALSE(parse_next_link("/x; rel=next"));
  EXPECT_FALSE(parse_next_link("<>; rel=next"));
  EXPECT_FALSE(parse_next_link("</x; rel=next"));
}

TEST(HttpHeaders, Etags) {
  EXPECT_EQ(parse_etag(" \"abc\" "), "abc");
  EXPECT_EQ(parse_etag("W/\"abc\""), "W/abc");
  EXPECT_EQ(parse_etag("abc"), "");
  EXPECT_EQ(parse_etag("\"\""), "");
  EXPECT_EQ(parse_etag("\"a b\""), "");
}

TEST(Url, PartsAndOrigins) {
  Url url = parse_url("HTTPS://User:Key@Example.org/a/../b%20c?x=1#part");
  EXPECT_EQ(url.scheme, "https");
  EXPECT_EQ(url.host, "example.org");
  EXPECT_EQ(url.port, 443);
  EXPECT_EQ(url.path, "/a/../b%20c");
  EXPECT_TRUE(same_origin(url, parse_url("https://example.org:443/")));
  EXPECT_FALSE(same_origin(url, parse_url("http://example.org/")));
  EXPECT_FALSE(same_origin(url, parse_url("https://example.org:444/")));
  EXPECT_FALSE(same_origin(url, parse_url("https://example.org.evil.net/")));
  for (const char* bad : {"", "example.org", "ftp://example.org/", "http://", "http://a b/",
                          "http://example.org/a b", "http://example.org:99999/", "file:///etc"})
    expect_contains(user_error([&] { parse_url(bad); }), "is not a valid address");
}

TEST(Url, References) {
  Url base = parse_url("http://host:8080/a/b?c");
  EXPECT_EQ(resolve_reference(base, "/x y")->text, "http://host:8080/x%20y");
  EXPECT_EQ(resolve_reference(base, "../z?q")->path, "/z");
  EXPECT_EQ(resolve_reference(base, "//other/z")->host, "other");
  EXPECT_EQ(resolve_reference(base, "https://other/z")->port, 443);
  EXPECT_FALSE(resolve_reference(base, "file:///etc/passwd"));
  EXPECT_FALSE(resolve_reference(base, "gopher://other/"));
  EXPECT_FALSE(resolve_reference(base, std::string_view("/a\0b", 4)));
}

TEST(Url, MessagesHoldNoSecrets) {
  EXPECT_EQ(public_url("https://u:p@h:1/a@b?X-Amz-Signature=s#f"), "https://h:1/a@b");
  EXPECT_EQ(public_url("hf://datasets/a/b@main"), "hf://datasets/a/b@main");
  EXPECT_EQ(public_url("https://h/\x1b[2J"), "https://h/?[2J");
  EXPECT_EQ(public_url("http://u:p/x@h/"), "http://u:p/x@h/");  // as libcurl reads it: no user
}

TEST(Url, RecordsMaskWhatMayBeSecret) {
  for (std::string_view whole : {"https://h/a@b", "s3://b/what?#", "a?b", "hf://a/b@main", ""}) {
    EXPECT_EQ(masked_url(whole), whole);
    EXPECT_FALSE(is_masked_url(whole)) << whole;
  }
  for (std::string_view secret :
       {"https://h/a?s=1", "https://u:p@h/a", "https://h/a?...", "https://h/a\x1b[2J"}) {
    EXPECT_EQ(masked_url(secret), "https://h/a?...");
    EXPECT_TRUE(is_masked_url(masked_url(secret)));
  }
}

TEST(Url, PercentEncoding) {
  std::string all;
  for (int c = 0; c < 256; ++c) all.push_back(static_cast<char>(c));
  EXPECT_EQ(percent_decode(percent_encode(all, false), true), all);
  EXPECT_EQ(percent_encode("a/b c+\xc3\xa4~", true), "a/b%20c%2B%C3%A4~");
  EXPECT_EQ(percent_encode("a/b", false), "a%2Fb");
  EXPECT_EQ(percent_decode("a+b%2B", true), "a b+");
  EXPECT_EQ(percent_decode("a+b", false), "a+b");
  for (const char* bad : {"%", "%4", "%4x", "a%"}) EXPECT_FALSE(percent_decode(bad, false)) << bad;
}

}  // namespace
}  // namespace tessera
