// A program that publishes. It carries out the commands on its standard input, one a line, and
// answers each with the result of the call. `random SEED COUNT` does what comes.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ros.h"

struct talker {
	struct node node;
	const char *topic;
	struct publisher publisher;
	uint64_t number;
	unsigned seed, count;
};

static int plain(struct talker *talker, uint64_t bytes, bool is_wrong)
{
	struct message message = { talker->number, bytes, is_wrong };

	talker->number += !is_wrong;
	return rcl_publish(&talker->publisher, &message, 0);
}

static int serialized(struct talker *talker)
{
	uint64_t number = talker->number++;
	struct serialized message = { (uint8_t *)&number, sizeof(number), sizeof(number), {} };

	return rcl_publish_serialized_message(&talker->publisher, &message, 0);
}

static int loaned(struct talker *talker)
{
	struct message message = { talker->number++, 8, false };

	return rcl_publish_loaned_message(&talker->publisher, &message, 0);
}

static int init(struct talker *talker)
{
	return rcl_publisher_init(&talker->publisher, &talker->node, 0, talker->topic, 0);
}

// The child publishes the number that its parent publishes next, and ends without handlers.
static int in_child(struct talker *talker)
{
	int status;
	pid_t child = fork();

	if (!child)
		_exit(plain(talker, 8, false));
	waitpid(child, &status, 0);
	return status;
}

static int at_random(struct talker *talker)
{
	int kind = rand_r(&talker->seed) % 100, result = 0;

	if (kind < 60)
		return plain(talker, 8 + rand_r(&talker->seed) % 1000, false);
	if (kind < 65)
		return plain(talker, 300 << 10, false);
	if (kind < 70)
		return plain(talker, 8, true) != 1;
	if (kind < 75)
		return serialized(talker);
	if (kind < 80)
		return loaned(talker);
	if (kind < 82)
		return in_child(talker);
	if (kind < 85)
		return rcl_publisher_fini(&talker->publisher, 0) || init(talker);
	if (kind < 88)
		for (int i = 0; i < 40; i++)
			result |= plain(talker, 8, false);
	else
		usleep(rand_r(&talker->seed) % 3000);
	return result;
}

static void *talk(void *of)
{
	struct talker *talker = of;

	for (unsigned i = 0; i < talker->count; i++)
		if (at_random(talker))
			abort();
	return 0;
}

static int random_calls(unsigned seed, unsigned count)
{
	struct talker talkers[2] = { { { "/a" }, "/out", {}, 0, seed, count },
				     { { "/b" }, "/other", {}, 0, seed + 1, count } };
	pthread_t threads[2];

	for (int i = 0; i < 2; i++) {
		init(&talkers[i]);
		pthread_create(&threads[i], 0, talk, &talkers[i]);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], 0);
	printf("%lu %lu\n", talkers[0].number, talkers[1].number);
	return 0;
}

int main(int count, char **words)
{
	struct talker talker = { .node = { "/a" }, .topic = "/out" };
	char line[64];

	if (count == 4 && !strcmp(words[1], "random"))
		return random_calls(atoi(words[2]), atoi(words[3]));
	init(&talker);
	while (fgets(line, sizeof(line), stdin)) {
		int result = -1;

		line[strcspn(line, "\n")] = 0;
		if (!strcmp(line, "publish"))
			result = plain(&talker, 8, false);
		else if (!strcmp(line, "large"))
			result = plain(&talker, 300 << 10, false);
		else if (!strcmp(line, "wrong"))
			result = plain(&talker, 8, true);
		else if (!strcmp(line, "nothing"))
			result = rcl_publish(&talker.publisher, 0, 0);
		else if (!strcmp(line, "serialized"))
			result = serialized(&talker);
		else if (!strcmp(line, "loaned"))
			result = loaned(&talker);
		else if (!strcmp(line, "fork"))
			result = in_child(&talker);
		else if (!strcmp(line, "fini"))
			result = rcl_publisher_fini(&talker.publisher, 0);
		else if (!strcmp(line, "init"))
			result = init(&talker);
		else if (!strcmp(line, "shutdown"))
			result = rcl_shutdown(0);
		printf("%d\n", result);
		fflush(stdout);
	}
	return 0;
}
