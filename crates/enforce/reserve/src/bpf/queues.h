// Queues, and what decides about them.
#pragma once

static struct control *the_control(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&control, &zero);
}

static struct server *server_of(u32 index)
{
	return bpf_map_lookup_elem(&servers, &index);
}

static struct cpu *cpu_of(u32 index)
{
	return bpf_map_lookup_elem(&cpus, &index);
}

static u64 server_queue(u32 server)
{
	return 1 + server;
}

// Of a CPU: threads of soft gates that are out of their slots.
static u64 rest_queue(u32 cpu)
{
	return 1 + MAX_SERVERS + cpu;
}

static bool is_soft(void)
{
	struct control *c = the_control();

	return c && c->is_soft;
}

static bool is_open(const struct server *server)
{
	return !server->is_gated || *(const volatile u32 *)&server->is_open;
}

// As SCHED_RR's, and shorter for threads that would otherwise be normal ones or come last.
static u64 slice_of(const struct server *server, bool rests)
{
	return server->priority && !rests ? 100000000ULL : 5000000ULL;
}

// Whether a thread of this server goes before the one that runs on its CPU.
static bool preempts(const struct server *server, bool rests)
{
	struct cpu *cpu = cpu_of(server->cpu);
	u32 running = cpu ? cpu->running : 0;
	struct server *other = running ? server_of(running - 1) : 0;

	if (!other || rests)
		return false;
	return !is_open(other) || other->priority < server->priority;
}
