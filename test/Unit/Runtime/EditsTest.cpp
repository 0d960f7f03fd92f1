//===- EditsTest.cpp - room for what changes rows of logits ---------------===//
#include "runtime/Edits.h"
#include <cstring>
#include <gtest/gtest.h>

namespace megalith::runtime {
namespace {

TEST(Edits, PlacesAreUsedAgain) {
  EditPlaces places(16 * 10 + 15);
  EXPECT_EQ(places.take(16 * 4), 0);
  EXPECT_EQ(places.take(1), 4);
  EXPECT_EQ(places.take(16 * 6), std::nullopt);
  EXPECT_EQ(places.take(16 * 5), 5);
  places.give(4, 1);
  places.give(0, 16 * 4);
  EXPECT_EQ(places.take(16 * 5), 0); // both are one
  places.give(5, 16 * 5);
  places.give(0, 16 * 5);
  EXPECT_EQ(places.take(16 * 10), 0);
}

std::shared_ptr<const automata::TokenBytes> letters() {
  return std::make_shared<automata::TokenBytes>(std::vector<std::string>{"a", "b", "", "ab", "a word of many bytes"});
}

Request withFormat(automata::Formats &formats, const std::string &format) {
  Request request;
  request.sampling.format = format;
  request.format.tokens = formats.find(format);
  request.eos = {2};
  return request;
}

TEST(Edits, RequestsShareFormats) {
  automata::Formats formats(letters());
  std::vector<char> memory(1 << 14);
  int written = 0;
  const auto put = [&](int place, const std::vector<char> &image) {
    ++written;
    std::copy(image.begin(), image.end(), memory.begin() + place * 16);
    return true;
  };
  EditImages images(memory.size(), 5);
  const auto first = images.add(withFormat(formats, R"({"regex": "a+b"})"), put);
  const auto second = images.add(withFormat(formats, R"({"regex": "a+b"})"), put);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(written, 4); // tokens, format, and each request's own
  abi::Edits edits[2];
  std::memcpy(&edits[0], &memory[*first * 16], sizeof(abi::Edits));
  std::memcpy(&edits[1], &memory[*second * 16], sizeof(abi::Edits));
  EXPECT_EQ(edits[0].format, edits[1].format);
  abi::Format format;
  std::memcpy(&format, &memory[edits[0].format * 16], sizeof(format));
  EXPECT_LT(format.start, format.complete); // the empty text is none
  EXPECT_EQ(format.complete, format.final); // behind the only complete one nothing comes
  images.drop(*first);
  ASSERT_TRUE(images.add(withFormat(formats, R"({"choice": ["ab"]})"), put));
  EXPECT_EQ(written, 6); // the tokens are there
  images.drop(*second);
  const auto third = images.add(withFormat(formats, R"({"regex": "a+b"})"), put);
  ASSERT_TRUE(third);
  EXPECT_EQ(written, 7); // so is the format, which nobody had
  images.drop(*third);
  EXPECT_EQ(images.add(withFormat(formats, R"({"regex": "a{900}"})"), put), std::nullopt);
  ASSERT_TRUE(images.add(withFormat(formats, R"({"regex": "a{19}"})"), put)); // in place of it
  const Request last = withFormat(formats, R"({"regex": "a+b"})");
  EXPECT_EQ(EditImages::bytesOf(last, 5), editsOf(last, 0, 5).size() + imageOf(*last.format.tokens, 0).size() +
                                              imageOf(*last.format.tokens->tokens).size());
}

TEST(Edits, WhatCannotBePutIsFreeAgain) {
  automata::Formats formats(letters());
  EditImages images(1 << 14, 5);
  int left = 2;
  const auto fails = [&](int, const std::vector<char> &) { return left-- > 0; };
  const Request request = withFormat(formats, R"({"regex": "a+b"})");
  EXPECT_EQ(images.add(request, fails), std::nullopt);
  left = 100;
  for (int i = 0; i < 100; ++i) {
    const auto place = images.add(request, [](int, const std::vector<char> &) { return true; });
    ASSERT_TRUE(place) << i;
    images.drop(*place);
  }
}

TEST(Edits, AnswersAreCompleteOrPartial) {
  automata::Formats formats(letters());
  const Request request = withFormat(formats, R"({"regex": "a+b"})");
  EXPECT_EQ(formatOf(request, {0, 1}), "complete");
  EXPECT_EQ(formatOf(request, {0, 3, 2}), "complete"); // with its end
  EXPECT_EQ(formatOf(request, {0}), "partial");
  EXPECT_EQ(formatOf(Request(), {0}), "");
}

} // namespace
} // namespace megalith::runtime
